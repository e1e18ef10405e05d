"""`import octavo` costs nothing and brings no heavy package along."""

from __future__ import annotations

import subprocess
import sys

import pytest

import octavo

pytestmark = pytest.mark.alone

_PROGRAM = """
import sys, time
start = time.perf_counter()
import octavo
seconds = time.perf_counter() - start
heavy = {"numpy", "torch", "transformers", "fastapi", "tokenizers", "msgspec", "rich"} & set(sys.modules)
print(seconds < 0.1, sorted(heavy))
"""


def test_import_is_quick_and_light() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "True []"


def test_every_public_name_can_be_loaded() -> None:
    for name in octavo.__all__:
        assert getattr(octavo, name) is not None
    assert set(octavo.__all__) <= set(dir(octavo))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = octavo.Nothing
