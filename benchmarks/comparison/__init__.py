"""What compare.py and run.py are made of: peers, modes, rounds, ratios and reports."""
