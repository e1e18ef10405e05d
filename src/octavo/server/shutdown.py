"""Shutdown: a first SIGTERM or SIGINT drains, a second one ends at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from octavo.server.context import ServerContext

log = logging.getLogger("octavo.server")

FLUSH_TIMEOUT_S = 5.0
"""How long answers of aborted requests may take to reach their clients."""


class Shutdown:
    """Closes the door (new requests get 503), lets running requests finish for timeout_s, aborts the rest, then calls stop."""

    def __init__(self, context: ServerContext, timeout_s: float, stop: Callable[[bool], None]) -> None:
        self._context = context
        self._inflight = context.inflight
        self._timeout_s = timeout_s
        self._stop = stop
        self._task: asyncio.Task[None] | None = None

    def on_signal(self) -> None:
        """Runs on the event loop. stop(False) ends the server when it is idle, stop(True) without waiting for anyone."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._drain())
        else:
            log.warning("second signal: stopping at once")
            self._stop(True)

    async def _drain(self) -> None:
        self._inflight.close()
        if self._inflight.count:
            count = self._inflight.count
            log.info("draining for up to %g s, requests: %d; a second signal stops at once", self._timeout_s, count)
        try:
            if not await self._inflight.wait_empty(self._timeout_s):
                log.warning("%g s are over, requests that are aborted: %d", self._timeout_s, self._inflight.count)
                await self._context.service.engine.drain(0.0)
                await self._inflight.wait_empty(FLUSH_TIMEOUT_S)
        except Exception:
            log.exception("drain failed")
        finally:
            self._stop(False)
