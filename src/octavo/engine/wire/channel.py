"""CoreChannel: the core process' end of the message pipe; and the first words it hears, which come on stdin."""

from __future__ import annotations

import select
import socket
import threading

import msgspec

from octavo.engine.wire.frames import ChannelError, FrameReader, FrameWriter
from octavo.engine.wire.messages import FromCore, Shutdown, StartCore, ToCore

LINGER_S = 1.0
"""How long the last messages get to leave when the channel is closed."""


class CoreChannel:
    """Polls with a deadline, sends without waiting. Any thread may send; one thread receives and closes.

    num_sent  messages so far
    """

    def __init__(self, sock: socket.socket) -> None:
        """sock: connected to the API process; the channel's own from now on."""
        sock.setblocking(False)
        self._socket = sock
        self._reader = FrameReader[ToCore](sock, msgspec.msgpack.Decoder(ToCore))
        self._writer = FrameWriter(sock)
        self._lock = threading.Lock()
        self.num_sent = 0

    def receive(self, timeout_s: float) -> list[ToCore]:
        """All messages that are there, after waiting at most timeout_s seconds for the first one.

        A parent that has closed its end, or is gone, tells the core to end: the last message is a Shutdown then.
        """
        messages: list[ToCore] = []
        if self._writer.is_behind:
            with self._lock:
                self._writer.flush()
        if timeout_s > 0.0:
            # A core that waits has nothing to compute, and so much time to bring out what was left.
            self._wait(select.POLLIN | select.POLLOUT if self._writer.is_behind else select.POLLIN, timeout_s)
        while True:
            try:
                arrived = self._reader.read()
            except BlockingIOError:
                return messages
            if arrived is None:
                return [*messages, Shutdown()]
            messages += arrived

    def send(self, message: FromCore) -> None:
        """Send without waiting. Raises ChannelError when the API process is gone or has not read for very long."""
        with self._lock:
            self._writer.send(message)
            self.num_sent += 1

    def close(self) -> None:
        """Close, giving the last messages LINGER_S seconds to leave."""
        with self._lock:
            try:
                while self._writer.is_behind and self._wait(select.POLLOUT, LINGER_S):
                    self._writer.flush()
            except ChannelError:
                pass  # nobody is there to hear them
            self._socket.close()

    def _wait(self, events: int, timeout_s: float) -> bool:
        """Whether one of the events came within timeout_s seconds."""
        poller = select.poll()  # select() takes no descriptor beyond 1023, which a core that was restarted under load may get
        poller.register(self._socket, events)
        return bool(poller.poll(timeout_s * 1000))


def encode_start(start: StartCore) -> bytes:
    return msgspec.msgpack.encode(start)


def decode_start(data: bytes) -> StartCore:
    return msgspec.msgpack.decode(data, type=StartCore)
