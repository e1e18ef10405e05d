"""CoreChannel: the core process' end of the message pipe; limits and encoding, which both ends share."""

from __future__ import annotations

from typing import Any

import msgspec
import zmq

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


class CoreChannel:
    """Connects to the API process, polls with a deadline, sends with a deadline."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        bound_socket(self._socket)
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
            self._socket.send(encode_message(message))
        except zmq.Again:
            raise ChannelError("the API process does not read its messages") from None

    def close(self) -> None:
        """Close, giving the last messages a second to leave."""
        self._context.destroy(linger=1000)


def encode_start(start: StartCore) -> bytes:
    return msgspec.msgpack.encode(start)


def decode_start(data: bytes) -> StartCore:
    return msgspec.msgpack.decode(data, type=StartCore)


def encode_message(message: ToCore | FromCore) -> bytes:
    """Raises ChannelError if the message is larger than the limit."""
    data = msgspec.msgpack.encode(message)
    if len(data) > MAX_MESSAGE_BYTES:
        raise ChannelError(f"a message of {len(data)} bytes is larger than the limit of {MAX_MESSAGE_BYTES}")
    return data


def bound_socket(socket: zmq.Socket[Any]) -> None:
    """Set limits and deadlines of either end."""
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    socket.setsockopt(zmq.SNDHWM, MAX_QUEUED_MESSAGES)
    socket.setsockopt(zmq.RCVHWM, MAX_QUEUED_MESSAGES)
    socket.setsockopt(zmq.SNDTIMEO, SEND_DEADLINE_MS)
