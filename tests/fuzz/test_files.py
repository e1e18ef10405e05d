"""A short slice of `make fuzz`: files."""

from __future__ import annotations

import pytest
from tests.fuzz.files import campaign


@pytest.mark.parametrize("kind", ["gguf", "folder", "coded"])
def test_a_damaged_file_loads_or_is_refused_in_one_line(kind: str) -> None:
    counts, faults = campaign(kind, 0, 40)
    assert not faults, "\n".join(faults)
    assert counts["loaded"] and counts["refused"] and sum(counts.values()) == 40
