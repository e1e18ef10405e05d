"""Policies: who waits in front, who gives way when blocks run out. One policy per file."""
