"""CoreTokens: the core process hears of the model's tokens before a request with a form needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from octavo.errors import OctavoError
from octavo.grammar.tokens import TokenTable

IDLE_S = 1.0
"""Between two looks whether the engine is idle."""


class CoreTokens:
    """Belongs to one event loop. A core needs them once; its successor must be told anew.

    What the core makes of them holds up its steps for some tenths of a second, with a large vocabulary for seconds. So they are
    sent while there is nothing to hold up, and only a form that comes before such a moment has to wait for them.

    make_table  takes as long as some steps; it is called on a thread
    send        hands the table to the core; raises OctavoError when there is none
    is_idle     whether no request runs
    """

    def __init__(
        self, make_table: Callable[[], TokenTable], send: Callable[[TokenTable], None], is_idle: Callable[[], bool]
    ) -> None:
        self._make_table = make_table
        self._send = send
        self._is_idle = is_idle
        self._is_told = False
        self._wanted = asyncio.Event()
        self._wanted.set()

    def core_lost(self) -> None:
        """The next core knows nothing."""
        self._is_told = False
        self._wanted.set()

    async def tell(self) -> None:
        """Return when the core has been told. Raises what `send` raises."""
        while not self._is_told:
            table = await asyncio.to_thread(self._make_table)
            if not self._is_told:
                self._send(table)
                self._is_told = True
                self._wanted.clear()

    async def tell_when_idle(self) -> None:
        """Watch for a moment to tell every core that comes; runs until it is cancelled."""
        while True:
            await self._wanted.wait()
            await asyncio.sleep(IDLE_S)
            if self._is_idle():
                try:
                    await self.tell()
                except OctavoError:
                    continue  # there is no core now
