"""PhaseCost: where the time of a program goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """What all phases of one kind cost since counting began: ops by name, runs, seconds, multiply-accumulates, bytes of
    weights and cache read."""

    label: str
    runs: int
    seconds: float
    macs: float
    bytes: float
