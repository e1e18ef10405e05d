"""Reload: files that are read again while the server runs, on SIGHUP and when they change."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.errors import OctavoError

log = logging.getLogger("octavo.server")

INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Reloadable:
    """Some files, and what reads them. read raises OctavoError for files that cannot be used, and then changes nothing."""

    name: str
    paths: Sequence[str]
    read: Callable[[], None]


class Reload:
    """Looks at the files every INTERVAL_S. What was good stays in force until something good takes its place."""

    def __init__(self, parts: Sequence[Reloadable]) -> None:
        self._parts = parts
        self._stamps = [_stamps(part) for part in parts]

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.look()

    def look(self) -> None:
        """Read the files that have changed since the last look."""
        for index, part in enumerate(self._parts):
            stamps = _stamps(part)
            if stamps != self._stamps[index]:
                self._stamps[index] = stamps
                _read(part)

    def on_signal(self) -> None:
        """Read all of them."""
        for index, part in enumerate(self._parts):
            self._stamps[index] = _stamps(part)
            _read(part)


def _read(part: Reloadable) -> None:
    try:
        part.read()
    except OctavoError as error:
        log.error("%s: not read again, the old one stays in force: %s", part.name, error.message)
    else:
        log.info("%s: read again", part.name)


def _stamps(part: Reloadable) -> list[tuple[int, int, int] | None]:
    """None for a file that is not there."""
    found: list[tuple[int, int, int] | None] = []
    for path in part.paths:
        try:
            status = os.stat(path)
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            found.append(None)
    return found
