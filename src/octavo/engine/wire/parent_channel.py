"""ParentChannel: the API process' end of a private, bounded, two-way message pipe to one core process.

It is a pair of connected sockets without a name: only the core process, which inherits the other end, can talk to this one.
Each core process gets a channel of its own: nothing of a crashed core can arrive at its successor.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
from collections import deque
from collections.abc import Callable

import msgspec

from octavo.engine.wire.frames import ChannelError, FrameReader, FrameWriter
from octavo.engine.wire.messages import FromCore, ToCore
from octavo.log import get_logger

_logger = get_logger(__name__)


class ParentChannel:
    """Belongs to the event loop it was made on. Messages are handed on as they come, and sent without waiting.

    core_end  the socket that the core process inherits; whoever starts it closes this copy then
    """

    def __init__(self) -> None:
        self._socket, core_end = socket.socketpair()
        self.core_end = _above_standard(core_end)
        self._socket.setblocking(False)
        self._reader = FrameReader[FromCore](self._socket, msgspec.msgpack.Decoder(FromCore))
        self._writer = FrameWriter(self._socket)
        self._inbox: deque[FromCore] = deque()
        """What came before anybody took it."""
        self._take: Callable[[FromCore], None] = self._inbox.append
        self._error: Exception | None = None
        """Why nothing can be read any more."""
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._on_readable)

    async def receive(self) -> FromCore:
        """The next message. Raises ChannelError when what comes is no stream of messages."""
        while not self._inbox:
            await self._news()
        return self._inbox.popleft()

    async def deliver(self, take: Callable[[FromCore], None]) -> None:
        """Call `take` with every message from now on. Never returns; raises what `take` raises, or ChannelError.

        The calls come straight from the event loop: a task in between would cost every step as much as a token's text does.
        """
        while self._inbox:
            take(self._inbox.popleft())
        self._take = take
        while True:
            await self._news()

    def send(self, message: ToCore) -> None:
        """Hand a message on without waiting. Raises ChannelError if it is too large, or the core is gone or hangs."""
        self._writer.send(message)
        if self._writer.is_behind:
            self._loop.add_writer(self._socket, self._on_writable)

    def close(self) -> None:
        """Drop what is queued. Safe to call twice, and after the loop has been closed."""
        if self._socket.fileno() >= 0 and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket.close()
        self.core_end.close()

    def _on_readable(self) -> None:
        try:
            arrived = self._reader.read()
            if arrived is None:
                # The core's end is closed. That the core is gone is noticed by whoever watches its process.
                self._loop.remove_reader(self._socket)
                return
            for message in arrived:
                self._take(message)
                if self._inbox:
                    self._wake()
        except BlockingIOError:
            return
        except Exception as error:
            self._loop.remove_reader(self._socket)
            self._error = error
            self._wake()

    async def _news(self) -> None:
        """Wait until the inbox has grown. Raises what keeps anything more from coming."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _on_writable(self) -> None:
        try:
            self._writer.flush()
        except ChannelError as error:
            _logger.error("messages to the core were lost: %s", error)
            self._loop.remove_writer(self._socket)
            return
        if not self._writer.is_behind:
            self._loop.remove_writer(self._socket)


def _above_standard(sock: socket.socket) -> socket.socket:
    """The socket with a descriptor above 2: in the new process 0, 1 and 2 become something else.

    It has one of them when the program that uses octavo was started with closed streams.
    """
    if sock.fileno() > 2:
        return sock
    with sock:
        return socket.socket(fileno=fcntl.fcntl(sock, fcntl.F_DUPFD_CLOEXEC, 3))
