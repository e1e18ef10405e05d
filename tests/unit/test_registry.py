"""The lazy name table."""

from __future__ import annotations

import pytest

from octavo.errors import ConfigError
from octavo.registry import Registry


def test_a_name_gives_its_class_when_asked_for() -> None:
    registry = Registry("tool", {"error": "octavo.errors:ConfigError", "broken": "no.such.module:Thing"}, ConfigError)
    assert registry.load("error") is ConfigError
    assert registry.names == ("error", "broken")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    registry = Registry("tool", {"hammer": "a:B", "saw": "a:C"}, ConfigError)
    with pytest.raises(ConfigError, match="unknown tool 'axe'; known: hammer, saw"):
        registry.load("axe")
