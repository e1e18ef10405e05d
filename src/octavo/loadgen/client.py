"""A small HTTP/1.1 client on asyncio streams that times streamed answers.

The load generator shares two cores with the server it measures, so the client does no more than it must: one connection per
worker, kept alive; chunked or sized bodies; server-sent events split on blank lines.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from octavo.errors import ConfigError, OctavoError

CONNECT_TIMEOUT_S = 10.0
READ_LIMIT_BYTES = 16 * 2**20
_ERRNO = re.compile(r"\[Errno (\d+)\]")


class RemoteError(OctavoError):
    """The server answered with an error, broke the protocol, or could not be reached."""

    code = "remote_error"


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go. prefix is the URL's path without a trailing slash or /v1."""

    host: str
    port: int
    tls: bool
    prefix: str
    api_key: str | None = None

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_target(url: str, api_key: str | None = None) -> Target:
    """http://host:port, with or without /v1 at the end. Raises ConfigError for anything else."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise ConfigError(f"--url {url!r} is not a URL; an example is http://127.0.0.1:8000", param="url") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--url {url!r} is not an http or https URL; an example is http://127.0.0.1:8000", param="url")
    tls = parts.scheme == "https"
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    return Target(parts.hostname, port or (443 if tls else 80), tls, prefix, api_key)


@dataclass(slots=True)
class Reply:
    """The head of an answer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


class Connection:
    """One connection to the target, opened when first needed and again after the server closed it. One request at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def get_json(self, path: str) -> Any:
        return await self._json("GET", path, None)

    async def get_text(self, path: str) -> str:
        """The answer as text. Raises RemoteError for a status other than 200."""
        async with aclosing(self._request("GET", path, None)) as chunks:
            return b"".join([chunk async for chunk in chunks]).decode("utf-8", "replace")

    async def post_json(self, path: str, body: Mapping[str, Any]) -> Any:
        """The decoded answer. Raises RemoteError for a status other than 200."""
        return await self._json("POST", path, body)

    async def stream_events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        """The data of each server-sent event, [DONE] left out. Closing it early drops the connection, so the server aborts."""
        complete = False
        try:
            async with aclosing(self._request("POST", path, body)) as chunks:
                buffer = b""
                async for chunk in chunks:
                    *events, buffer = (buffer + chunk).split(b"\n\n")
                    for event in events:
                        data = b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
                        if data and data != b"[DONE]":
                            yield data
                complete = True
        finally:
            if not complete:
                self.close()

    async def _json(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        async with aclosing(self._request(method, path, body)) as chunks:
            raw = b"".join([chunk async for chunk in chunks])
        try:
            return msgspec.json.decode(raw)
        except msgspec.MsgspecError:
            raise RemoteError(f"{path}: the answer is not JSON: {raw[:200]!r}") from None

    async def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> AsyncGenerator[bytes, None]:
        """Send one request; yield the chunks of a 200 answer. Raises RemoteError otherwise."""
        payload = b"" if body is None else msgspec.json.encode(body)
        try:
            reader, reply = await self._exchange(method, path, payload)
            chunks = _body(reader, reply)
            if reply.status != 200:
                text = b"".join([chunk async for chunk in chunks])
                raise RemoteError(f"{method} {path}: status {reply.status}: {_error_text(text)}")
            async for chunk in chunks:
                yield chunk
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            self.close()
            raise RemoteError(f"{method} {path} at {self._target.authority}: {_reason(error)}") from None
        if reply.headers.get("connection", "").lower() == "close":
            self.close()

    async def _exchange(self, method: str, path: str, payload: bytes) -> tuple[asyncio.StreamReader, Reply]:
        """Send, and read the head. A kept connection that the server has closed meanwhile is opened again once."""
        head = self._head(method, path, len(payload))
        for fresh in (self._writer is None, True):
            reader, writer = await self._open()
            try:
                writer.write(head + payload)
                await writer.drain()
                return reader, await _read_head(reader)
            except (OSError, asyncio.IncompleteReadError):
                self.close()
                if fresh:
                    raise
        raise AssertionError("unreachable: the second round is fresh")

    def _head(self, method: str, path: str, length: int) -> bytes:
        lines = [f"{method} {self._target.prefix}{path} HTTP/1.1", f"host: {self._target.authority}"]
        if self._target.api_key is not None:
            lines.append(f"authorization: Bearer {self._target.api_key}")
        if method == "POST":
            lines += ["content-type: application/json", f"content-length: {length}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is not None and self._writer is not None:
            return self._reader, self._writer
        target = self._target
        context = ssl.create_default_context() if target.tls else None
        opening = asyncio.open_connection(target.host, target.port, ssl=context, limit=READ_LIMIT_BYTES)
        reader, writer = await asyncio.wait_for(opening, CONNECT_TIMEOUT_S)
        self._reader, self._writer = reader, writer
        return reader, writer

    def close(self) -> None:
        """Drop the connection; the next request opens a new one."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


async def _read_head(reader: asyncio.StreamReader) -> Reply:
    """Raises ValueError for a head that is not HTTP/1.x."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise ValueError(f"not an HTTP answer: {lines[0][:80]!r}")
    reply = Reply(int(rest[:3]))
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            reply.headers[name.strip().lower()] = value.strip()
    return reply


async def _body(reader: asyncio.StreamReader, reply: Reply) -> AsyncGenerator[bytes, None]:
    """The body in pieces as they arrive: chunked, sized, or up to the end of the connection."""
    if reply.headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            if size == 0:
                await reader.readuntil(b"\r\n")
                return
            yield (await reader.readexactly(size + 2))[:-2]
    elif "content-length" in reply.headers:
        yield await reader.readexactly(int(reply.headers["content-length"]))
    else:
        reply.headers["connection"] = "close"
        while data := await reader.read(65536):
            yield data


def _error_text(body: bytes) -> str:
    """The message in OpenAI's error shape, or the beginning of whatever came."""
    try:
        return str(msgspec.json.decode(body)["error"]["message"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")


def _reason(error: Exception) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return f"no connection within {CONNECT_TIMEOUT_S:.0f} s"
    if isinstance(error, asyncio.IncompleteReadError):
        return "the server closed the connection"
    if isinstance(error, OSError):
        return _os_reason(error)
    return str(error) or type(error).__name__


def _os_reason(error: OSError) -> str:
    """What the system says, without asyncio's words around it; for a name with several addresses, of the first."""
    inner = _ERRNO.search(str(error))
    number = error.errno or (int(inner[1]) if inner is not None else None)
    if number == errno.ECONNREFUSED:
        return "connection refused; is a server running there?"
    if number is not None and number > 0:
        return os.strerror(number).lower()
    return (error.strerror or str(error)).lower()


@dataclass(slots=True)
class Timing:
    """One streamed request as the client saw it. Times in seconds; token_times are when text arrived, since the start."""

    start_s: float
    prompt_len: int
    token_times: list[float] = field(default_factory=list)
    text: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    end_s: float = 0.0
    error: str | None = None

    @property
    def ttft_s(self) -> float:
        return self.token_times[0]

    @property
    def e2e_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def gaps_s(self) -> list[float]:
        """Inter-token latencies: time between arrivals."""
        return [later - earlier for earlier, later in zip(self.token_times, self.token_times[1:], strict=False)]

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None for a single token."""
        if self.output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


async def timed_completion(connection: Connection, path: str, body: Mapping[str, Any], prompt_len: int) -> Timing:
    """Run one streamed request; errors are noted in the result, not raised. Works for completions and chat completions."""
    timing = Timing(time.perf_counter(), prompt_len)
    try:
        async with aclosing(connection.stream_events(path, body)) as events:
            async for data in events:
                _note_event(timing, data)
        if not timing.token_times:
            timing.error = "the stream held no text"
    except OctavoError as error:
        timing.error = error.message
    timing.end_s = time.perf_counter()
    return timing


def _note_event(timing: Timing, data: bytes) -> None:
    event = _decode_event(data)
    if event.error is not None:
        raise RemoteError(str(event.error.get("message", event.error)))
    for choice in event.choices:
        text = choice.text if choice.text is not None else (choice.delta or _Delta()).content
        if text or choice.finish_reason is not None:
            timing.token_times.append(time.perf_counter() - timing.start_s)
            timing.text += text or ""
    if event.usage is not None:
        timing.prompt_tokens = event.usage.prompt_tokens
        timing.output_tokens = event.usage.completion_tokens


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Event)


def _decode_event(data: bytes) -> _Event:
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise RemoteError(f"an event is not what a completion stream holds ({error}): {data[:200]!r}") from None


def text_of_event(data: bytes) -> str:
    """The new text of one event, for the interactive commands. Raises RemoteError for an error event."""
    event = _decode_event(data)
    if event.error is not None:
        raise RemoteError(str(event.error.get("message", event.error)))
    return "".join(c.text or (c.delta.content if c.delta is not None else None) or "" for c in event.choices)
