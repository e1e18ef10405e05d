"""Work on hostile input, in processes with limits that can be killed."""
