"""human_int: whole numbers as people write them, with vLLM's suffixes."""

from __future__ import annotations

import re
from decimal import Decimal

_SUFFIXES = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{letter: 1024**power for power, letter in enumerate("KMGT", start=1)},
}
_FORM = re.compile(r"(-?\d{1,30})(\.\d{1,30})?([kmgtKMGT]?)")


def human_int(value: object) -> int:
    """2k is 2000, 2K is 2048, 25.6k is 25600; m, g and t go on in the same way. Raises ValueError.

    As in vLLM, only powers of 1000 take a fraction: nobody means 25.6 * 1024.
    """
    if isinstance(value, str):
        match = _FORM.fullmatch(value.strip())
        if match is None or (match[2] and match[3] not in tuple("kmgt")):
            raise ValueError(f"{value[:40]!r} is no whole number")
        number = Decimal(match[1] + (match[2] or "")) * _SUFFIXES[match[3]]
        if number % 1:
            raise ValueError(f"{value[:40]!r} is no whole number")
        return int(number)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value % 1:
        raise ValueError(f"{str(value)[:40]!r} is no whole number")
    return int(value)
