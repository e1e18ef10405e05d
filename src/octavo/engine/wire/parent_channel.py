"""ParentChannel: the API process' end of a private, bounded, two-way message pipe to one core process (ZMQ over a Unix socket).

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

from octavo.engine.wire.channel import bound_socket, encode_message
from octavo.engine.wire.messages import FromCore, ToCore
from octavo.errors import ConfigError
from octavo.log import get_logger

_logger = get_logger(__name__)


class ParentChannel:
    """The API process' end: binds, awaits messages from the core, sends without waiting."""

    def __init__(self) -> None:
        """Raises ConfigError when no socket can be made in the temporary folder."""
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="octavo-"))  # mkdtemp makes it 0700
        except OSError as error:
            raise ConfigError(f"no temporary folder for the engine's socket: {error}; set TMPDIR to a writable one") from None
        self.address = f"ipc://{self._folder}/core"
        self._context = zmq.asyncio.Context()
        self._socket: zmq.asyncio.Socket = self._context.socket(zmq.PAIR)
        bound_socket(self._socket)
        try:
            self._socket.bind(self.address)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(f"the engine's socket cannot be made: {error}; set TMPDIR to a shorter path") from None
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
        sent: asyncio.Future[Any] = asyncio.ensure_future(self._socket.send(encode_message(message)))
        if sent.done():
            sent.result()
        else:
            sent.add_done_callback(_log_lost_message)

    def remove_folder(self) -> None:
        """Remove the socket's folder once the core is connected: connected sockets need no name, no second one can connect, and
        nothing is left on the disk even if this process is killed."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        """Drop what is queued and remove the socket's folder. Safe to call twice."""
        self._context.destroy(linger=0)
        self.remove_folder()


def _log_lost_message(sent: asyncio.Future[Any]) -> None:
    if not sent.cancelled() and sent.exception() is not None:
        _logger.error("a message to the core was lost: %s", sent.exception())
