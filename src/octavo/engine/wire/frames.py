"""Messages as frames of a byte stream, on a non-blocking socket: four bytes that count the payload, then msgpack."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from octavo.errors import OctavoError
from octavo.log import get_logger

MAX_MESSAGE_BYTES = 256 * 2**20
"""Largest message either side accepts: 8192 prompt logprobs with 20 alternatives are about 4 MB."""

MAX_UNSENT_BYTES = 2 * MAX_MESSAGE_BYTES
"""Per direction. Requests are bounded by the queue limit and outputs by max_tokens, so this is a backstop, not a valve."""

_HEADER = struct.Struct(">I")
_READ_BYTES = 64 * 1024

Message = TypeVar("Message")

_logger = get_logger(__name__)


class ChannelError(OctavoError):
    """The other side does not read or is gone, or a message is larger than allowed."""


class FrameWriter:
    """Sends what the socket takes at once and keeps the rest, so that neither process ever waits for the other."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._encoder = msgspec.msgpack.Encoder()
        self._frame = bytearray()
        self._unsent = bytearray()

    @property
    def is_behind(self) -> bool:
        """Whether something is left for `flush`."""
        return bool(self._unsent)

    def send(self, message: msgspec.Struct) -> None:
        """Raises ChannelError when the message is too large, the other side is gone, or it has not read for very long."""
        frame = self._frame
        self._encoder.encode_into(message, frame, _HEADER.size)
        size = len(frame) - _HEADER.size
        if size > MAX_MESSAGE_BYTES:
            self._frame = bytearray()
            raise ChannelError(f"a message of {size} bytes is larger than the limit of {MAX_MESSAGE_BYTES}")
        _HEADER.pack_into(frame, 0, size)
        if self._unsent:
            self._keep(frame)
            self.flush()
            return
        num_sent = self._write(frame)
        if num_sent < len(frame):
            self._keep(memoryview(frame)[num_sent:])

    def flush(self) -> None:
        """Send what was kept, as far as it goes now. Raises ChannelError when the other side is gone."""
        del self._unsent[: self._write(self._unsent)]

    def _write(self, data: bytearray) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ChannelError(f"the other side is gone ({error})") from None

    def _keep(self, data: bytearray | memoryview) -> None:
        if len(self._unsent) + len(data) > MAX_UNSENT_BYTES:
            raise ChannelError(f"the other side does not read; {len(self._unsent)} bytes wait for it")
        self._unsent += data


class FrameReader(Generic[Message]):
    """Cuts what arrives into messages."""

    def __init__(self, sock: socket.socket, decoder: msgspec.msgpack.Decoder[Message]) -> None:
        self._socket = sock
        self._decoder = decoder
        self._chunk = memoryview(bytearray(_READ_BYTES))
        self._rest = bytearray()
        """The beginning of a frame whose end has not come yet."""

    def read(self) -> Iterator[Message] | None:
        """The messages that are complete after one read; None at the end of the stream.

        One that cannot be decoded is logged and dropped. Raises: BlockingIOError when nothing is there, ChannelError, perhaps
        among the messages, for a frame that is larger than allowed.
        """
        try:
            size = self._socket.recv_into(self._chunk)
        except ConnectionError:
            return None
        return self._messages(self._chunk[:size]) if size else None

    def _messages(self, data: memoryview) -> Iterator[Message]:
        for payload in self._payloads(data):
            try:
                message = self._decoder.decode(payload)
            except (msgspec.DecodeError, ValueError) as error:
                _logger.error("dropped an undecodable message of %d bytes: %s", len(payload), error)
                continue
            yield message

    def _payloads(self, data: memoryview) -> Iterator[memoryview | bytearray]:
        rest = self._rest
        if not rest:
            # Nearly always whole frames arrive, which are cut where they lie.
            while (end := _frame_end(data)) is not None:
                yield data[_HEADER.size : end]
                data = data[end:]
        rest += data
        while rest and (end := _frame_end(rest)) is not None:
            payload = rest[_HEADER.size : end]
            del rest[:end]
            yield payload


def _frame_end(data: memoryview | bytearray) -> int | None:
    """Where the first frame ends; None when its end has not come yet."""
    if len(data) < _HEADER.size:
        return None
    (size,) = _HEADER.unpack_from(data)
    if size > MAX_MESSAGE_BYTES:
        raise ChannelError(f"a message of {size} bytes is larger than the limit of {MAX_MESSAGE_BYTES}")
    end: int = _HEADER.size + size
    return end if end <= len(data) else None
