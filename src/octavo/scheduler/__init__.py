"""Token-budget continuous batching. Pure: ids, counts and the time it is given."""
