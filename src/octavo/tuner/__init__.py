"""Searches an engine's settings with the simulator."""
