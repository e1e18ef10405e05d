"""What random histories must have seen, or they prove little."""

from __future__ import annotations

MECHANISMS = (
    "preemptions",
    "copies",
    "chunks",
    "failures",
    "aborts in flight",
    "cache hits",
    "forks",
    "finished after preemption",
    "policy swaps with a queue",
    "timeouts",
    "relayouts with company",
    "relayouts that preempt",
    "queue timeouts",
    "drafts accepted",
    "drafts rejected",
    "forced tokens",
)
DEEP_MECHANISMS = (
    "several in flight",
    "run ahead",
    "aborts behind others",
    "timeouts in flight",
    "failures of several",
    "nothing to plan",
)
SWAP_MECHANISMS = ("moves out", "moves in", "swapped without loss", "lost moves", "kept blocks taken back", "copies", "forks")
