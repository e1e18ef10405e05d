"""systemd: says when the server is ready and when it stops, and that it lives, in the protocol of sd_notify(3)."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping

log = logging.getLogger("octavo.server")

STATUS_INTERVAL_S = 10.0


class Notifier:
    """Does nothing where no service manager listens.

    environment  NOTIFY_SOCKET: where it listens; WATCHDOG_USEC: within which time it wants a word
    status       what to say of the server's health
    """

    def __init__(self, environment: Mapping[str, str], status: Callable[[], Awaitable[str]]) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._status = status
        wanted = environment.get("WATCHDOG_USEC", "")
        self._watchdog_s = int(wanted) / 1e6 if wanted.isdigit() and int(wanted) else None

    def ready(self) -> None:
        self._say("READY=1\nSTATUS=serving")

    def stopping(self) -> None:
        self._say("STOPPING=1\nSTATUS=draining")

    async def watch(self) -> None:
        """Until cancelled: a word within half of the time that the watchdog gives. The loop that says it is the one that
        serves; of the engine's own process the server takes care itself."""
        if not self._address:
            return
        interval_s = STATUS_INTERVAL_S if self._watchdog_s is None else min(STATUS_INTERVAL_S, self._watchdog_s / 2)
        while True:
            line = " ".join((await self._status()).split())
            self._say(f"STATUS={line}" if self._watchdog_s is None else f"WATCHDOG=1\nSTATUS={line}")
            await asyncio.sleep(interval_s)

    def _say(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
                sock.sendto(text.encode(), self._address)
        except OSError as error:
            log.debug("the service manager does not listen: %s", error)
