"""Architectures: programs over octavo.ops, one family per file."""
