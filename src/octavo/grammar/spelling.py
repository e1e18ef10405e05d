"""free_spelling, has_long_texts: which grammars leave it to the model by which tokens it writes what must come."""

from __future__ import annotations

import math
import re

LONG_TEXT = 4096
"""Characters. What must come is looked at as a whole, at each of its tokens: long texts would hold up a step."""

_FREE = '%llguidance {"no_forcing": true}\n'
_COUNT = re.compile(r'(?:\{|"min(?:Items|Length|Properties)": ?)(\d+)')
_COUNT_OF_SEVERAL = re.compile(r'(?:\)\{|"min(?:Items|Properties)": ?)(\d+)')
"""What they count may hold counts itself."""


def free_spelling(grammar: str) -> str:
    """The same grammar, with every spelling allowed."""
    return grammar if grammar.startswith(_FREE) else _FREE + grammar


def has_long_texts(grammar: str) -> bool:
    """Whether a text of it, or one that it repeats, may be long."""
    longest = max(map(len, re.split('["/]', grammar)))
    counts = [int(count) for count in _COUNT.findall(grammar)]
    product = math.prod(max(1, int(count)) for count in _COUNT_OF_SEVERAL.findall(grammar))
    return max(longest, product * max([1, *counts])) > LONG_TEXT
