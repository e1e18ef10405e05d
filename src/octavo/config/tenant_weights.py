"""Tenant weights: NAME=WEIGHT,... as a table."""

from __future__ import annotations

import math

from octavo.errors import ConfigError


def parse_tenant_weights(text: str | None) -> dict[str, float]:
    """The weights in `text`, in its order; empty for None. Raises ConfigError naming the entry that is wrong."""
    weights: dict[str, float] = {}
    for entry in (text or "").split(","):
        if not entry.strip():
            continue
        name, sign, number = (part.strip() for part in entry.rpartition("="))
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not sign or not name or not 0.001 <= weight <= 1000.0:
            raise _error(f"{entry.strip()[:100]!r} is not NAME=WEIGHT with a weight of 0.001 to 1000, such as team-a=2")
        if name in weights:
            raise _error(f"{name[:100]!r} stands twice")
        weights[name] = weight
    return weights


def _error(problem: str) -> ConfigError:
    return ConfigError(f"--tenant-weights: {problem}", param="tenant_weights")
