"""The native CPU backend: packed weights, a recorded tape, one call into C++ per step."""
