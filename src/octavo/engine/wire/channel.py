"""Channel: a private, bounded, two-way message pipe between the API process and one core process (ZMQ over a Unix socket).

The socket lives in a fresh folder with mode 0700, so only this user can reach it. Each core process gets a channel of its own:
nothing of a crashed core can arrive at its successor.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from octavo.engine.wire.messages import FromCore, StartCore, ToCore
from octavo.errors import OctavoError
from octavo.log import get_logger

MAX_MESSAGE_BYTES = 256 * 2**20
"""Largest message either side accepts: 8192 prompt logprobs with 20 alternatives are about 4 MB."""

MAX_QUEUED_MESSAGES = 100_000
"""Per direction. Requests are bounded by the queue limit and outputs by max_tokens, so this is a backstop, not a valve."""

SEND_DEADLINE_MS = 10_000

_logger = get_logger(__name__)


class ChannelError(OctavoError):
    """The other side does not read, or a message is larger than allowed."""


class ParentChannel:
    """The API process' end: binds, awaits messages from the core, sends without waiting."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="octavo-"))  # mkdtemp makes it 0700
        self.address = f"ipc://{self._folder}/core"
        self._context = zmq.asyncio.Context()
        self._socket: zmq.asyncio.Socket = self._context.socket(zmq.PAIR)
        _bound(self._socket)
        self._socket.bind(self.address)
        self._decoder = msgspec.msgpack.Decoder(FromCore)

    async def receive(self) -> FromCore:
        """The next message that can be decoded; others are logged and dropped."""
        while True:
            data = await self._socket.recv()
            try:
                return self._decoder.decode(data)
            except (msgspec.DecodeError, ValueError) as error:
                _logger.error("dropped an undecodable message of %d bytes from the core: %s", len(data), error)

    def send(self, message: ToCore) -> None:
        """Hand a message to the socket without waiting. Raises ChannelError if it is too large.

        zmq.asyncio sends at once if it can. Only a core that has not read 100,000 messages makes it wait, and then the message
        is lost after the deadline, with a line in the log: such a core is hung, and the supervisor ends it.
        """
        sent: asyncio.Future[Any] = asyncio.ensure_future(self._socket.send(_encode(message)))
        if sent.done():
            sent.result()
        else:
            sent.add_done_callback(_log_lost_message)

    def close(self) -> None:
        """Drop what is queued and remove the socket's folder. Safe to call twice."""
        self._context.destroy(linger=0)
        shutil.rmtree(self._folder, ignore_errors=True)


class CoreChannel:
    """The core process' end: connects, polls with a deadline, sends with a deadline."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        _bound(self._socket)
        self._socket.connect(address)
        self._decoder = msgspec.msgpack.Decoder(ToCore)

    def receive(self, timeout_s: float) -> list[ToCore]:
        """All messages that are there, after waiting at most timeout_s seconds for the first one."""
        messages: list[ToCore] = []
        if not self._socket.poll(int(timeout_s * 1000)):
            return messages
        while True:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return messages
            try:
                messages.append(self._decoder.decode(data))
            except (msgspec.DecodeError, ValueError) as error:
                _logger.error("dropped an undecodable message of %d bytes: %s", len(data), error)

    def send(self, message: FromCore) -> None:
        """Send; raises ChannelError when the API process has not read for SEND_DEADLINE_MS."""
        try:
            self._socket.send(_encode(message))
        except zmq.Again:
            raise ChannelError("the API process does not read its messages") from None

    def close(self) -> None:
        """Close, giving the last messages a second to leave."""
        self._context.destroy(linger=1000)


def encode_start(start: StartCore) -> bytes:
    return msgspec.msgpack.encode(start)


def decode_start(data: bytes) -> StartCore:
    return msgspec.msgpack.decode(data, type=StartCore)


def _encode(message: ToCore | FromCore) -> bytes:
    data = msgspec.msgpack.encode(message)
    if len(data) > MAX_MESSAGE_BYTES:
        raise ChannelError(f"a message of {len(data)} bytes is larger than the limit of {MAX_MESSAGE_BYTES}")
    return data


def _log_lost_message(sent: asyncio.Future[Any]) -> None:
    if not sent.cancelled() and sent.exception() is not None:
        _logger.error("a message to the core was lost: %s", sent.exception())


def _bound(socket: zmq.Socket[Any]) -> None:
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    socket.setsockopt(zmq.SNDHWM, MAX_QUEUED_MESSAGES)
    socket.setsockopt(zmq.RCVHWM, MAX_QUEUED_MESSAGES)
    socket.setsockopt(zmq.SNDTIMEO, SEND_DEADLINE_MS)
