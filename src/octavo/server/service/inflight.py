"""Inflight: how many generation requests run, and whether new ones are still let in."""

from __future__ import annotations

import asyncio


class Inflight:
    """A counter with a door. `close()` shuts the door; `wait_empty` resolves when the last one inside has left."""

    def __init__(self) -> None:
        self.count = 0
        self.closed = False
        self._empty = asyncio.Event()
        self._empty.set()

    def enter(self) -> None:
        self.count += 1
        self._empty.clear()

    def leave(self) -> None:
        self.count -= 1
        if self.count == 0:
            self._empty.set()

    def close(self) -> None:
        self.closed = True

    async def wait_empty(self, timeout_s: float) -> bool:
        """True when nobody is inside any more, False when timeout_s seconds went by first."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except asyncio.TimeoutError:
            return False
        return True
