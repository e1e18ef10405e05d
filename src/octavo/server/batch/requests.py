"""The input of a batch: one request per line, {"custom_id", "method": "POST", "url", "body"}."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from octavo.errors import InvalidRequestError

MAX_LINE_BYTES = 16 * 2**20
"""As much as a body may have that comes over HTTP."""
MAX_ID_LENGTH = 512
URLS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses"),
    *("/v1/embeddings", "/v1/rerank", "/v1/score"),
)
"""What a line may ask for, where the server has it."""


@dataclass(frozen=True, slots=True)
class Line:
    """Where a line lies in the file: its number from 1, offset and bytes."""

    number: int
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BatchRequest:
    custom_id: str
    url: str
    body: bytes


def lines_of(file: BinaryIO) -> Iterator[tuple[Line, bytes]]:
    """The lines that are not blank, with their content; of one beyond MAX_LINE_BYTES only the beginning, one byte more."""
    offset = number = 0
    file.seek(0)
    while content := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        size = len(content)
        while not content.endswith(b"\n") and (more := file.readline(MAX_LINE_BYTES)):
            size += len(more)
            if more.endswith(b"\n"):
                break
        if content.strip():
            yield Line(number, offset, size), content
        offset += size


def read_line(file: BinaryIO, line: Line) -> bytes:
    file.seek(line.offset)
    return file.read(min(line.size_bytes, MAX_LINE_BYTES + 1))


def parse_line(content: bytes, urls: Collection[str]) -> BatchRequest:
    """The request on a line. Raises InvalidRequestError saying what is wrong with it."""
    if len(content) > MAX_LINE_BYTES:
        raise _wrong(f"the line has more than {MAX_LINE_BYTES} bytes", "line")
    try:
        value = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(f"the line is not valid JSON: {str(error)[:200]}", "line") from None
    if not isinstance(value, dict):
        raise _wrong('the line must be an object with "custom_id", "method", "url" and "body"', "line")
    custom_id = value.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_ID_LENGTH:
        raise _wrong(f"custom_id must be a text of 1 to {MAX_ID_LENGTH} characters", "custom_id")
    if value.get("method", "POST") != "POST":
        raise _wrong(f"method is {_shown(value['method'])}; it must be POST", "method")
    if value.get("url") not in urls:
        raise _wrong(f"url is {_shown(value.get('url'))}; it must be one of {', '.join(urls)}", "url")
    body = value.get("body")
    if not isinstance(body, dict):
        raise _wrong("body must be an object, the body of a request to that url", "body")
    if body.get("stream"):
        raise _wrong("body.stream: a batch has whole answers; leave it out", "body.stream")
    return BatchRequest(custom_id, value["url"], msgspec.json.encode(body))


def custom_id_of(content: bytes) -> str | None:
    """The custom_id of a line that may be broken; None if it has none."""
    try:
        value = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    custom_id = value.get("custom_id") if isinstance(value, dict) else None
    return custom_id if isinstance(custom_id, str) else None


def _shown(value: Any) -> str:
    return repr(value)[:100]


def _wrong(message: str, param: str) -> InvalidRequestError:
    return InvalidRequestError(message, param=param)
