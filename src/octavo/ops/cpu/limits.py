"""Limits: what this machine can do at most, measured, to hold figures against."""

from __future__ import annotations

from dataclasses import dataclass

from octavo import _native

_QUANTISED = (" q8 ", " q4 ", " w8a8 ")


@dataclass(frozen=True, slots=True)
class Limits:
    """All threads together.

    read_bytes_per_s   streaming read of memory far larger than the caches
    fma_macs_per_s     float32 multiply-accumulates of the ISA, nothing waiting for memory
    int8_macs_per_s    the same for the int8 tile of the quantised products
    """

    isa: str
    num_threads: int
    read_bytes_per_s: float
    fma_macs_per_s: float
    int8_macs_per_s: float

    def macs_per_s(self, label: str) -> float:
        """The arithmetic limit that holds for phases of this label."""
        return self.int8_macs_per_s if any(kind in label for kind in _QUANTISED) else self.fma_macs_per_s


def measure_limits(num_threads: int, isa: str) -> Limits:
    """Takes about half a second; the best of several rounds counts. isa may be "auto"."""
    name = _native.usable_isas()[0] if isa == "auto" else isa
    found = _native.measure_limits(_native.ThreadPool(num_threads), name)
    return Limits(name, num_threads, found.read_bytes_per_s, found.fma_macs_per_s, found.int8_macs_per_s)
