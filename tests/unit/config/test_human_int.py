"""human_int: vLLM's suffixes."""

from __future__ import annotations

import pytest

from octavo.config.human_int import human_int


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        (5, 5),
        (5.0, 5),
        (" 12 ", 12),
        ("-1", -1),
        ("1k", 1000),
        ("1K", 1024),
        ("25.6k", 25600),
        ("1.5m", 1_500_000),
        ("2M", 2 * 2**20),
        ("4G", 4 * 2**30),
        ("1T", 2**40),
        ("0.5g", 500_000_000),
    ],
)
def test_what_is_understood(text: object, value: int) -> None:
    assert human_int(text) == value


@pytest.mark.parametrize(
    "text", ["", "k", "1.5", "25.6K", "1kk", "1 k", "2x", "1e3", True, None, 1.5, [1], "9" * 5000, "0.0001k"]
)
def test_what_is_not(text: object) -> None:
    with pytest.raises(ValueError, match="is no whole number"):
        human_int(text)
