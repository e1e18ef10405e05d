"""Checkpoints on disk: containers, storage formats, names, and the configuration they carry."""
