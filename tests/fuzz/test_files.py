"""A short slice of `make fuzz`: files."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def campaign(kind: str, first: int, last: int) -> tuple[Counter[str], list[str]]:
    spec = importlib.util.spec_from_file_location("octavo_fuzz_files", HERE / "files.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    counts, faults = module.campaign(kind, first, last)
    return counts, faults


@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_a_damaged_file_loads_or_is_refused_in_one_line(kind: str) -> None:
    counts, faults = campaign(kind, 0, 40)
    assert not faults, "\n".join(faults)
    assert counts["loaded"] and counts["refused"] and sum(counts.values()) == 40
