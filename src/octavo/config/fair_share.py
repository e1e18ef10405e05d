"""share_of: what those may hold who would take everything, so that some is left for who comes next."""

from __future__ import annotations


def share_of(total: int, num_holders: int) -> int:
    """Most of `total` seats or blocks for each of those who would take all of them: one share is left for who comes next."""
    return max(1, min(total // 2, -(-total // (num_holders + 1))))


def share_of_all(total: int, num_holders: int) -> int:
    """Most of `total` for all of them together."""
    return total * num_holders // (num_holders + 1)
