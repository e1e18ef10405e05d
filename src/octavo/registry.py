"""Registry: a table from names to classes or functions that are imported when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from octavo.errors import OctavoError


class Registry:
    """Names of one pluggable room, each with the class behind it as "module:Class".

    what     the thing a name stands for, e.g. "model architecture"; used in messages
    error    class of the error raised for an unknown name
    """

    def __init__(self, what: str, entries: Mapping[str, str], error: type[OctavoError]) -> None:
        self._what = what
        self._entries = dict(entries)
        self._error = error

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def load(self, name: str) -> Any:
        """The class called name. Raises: the registry's error, listing the known names."""
        path = self._entries.get(name)
        if path is None:
            raise self._error(f"unknown {self._what} {name!r}; known: {', '.join(self.names)}")
        module, attribute = path.split(":")
        return getattr(import_module(module), attribute)
