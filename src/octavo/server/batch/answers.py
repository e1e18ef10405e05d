"""The output of a batch: one answer per line, in the order in which they are complete. A run that was ended goes on from it."""

from __future__ import annotations

import fcntl
import os
import secrets
from dataclasses import dataclass, field
from io import BufferedReader, FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import msgspec

from octavo.errors import ConfigError, InvalidRequestError

PASSING = (429, 503)
"""Status of answers that are no answers: the engine could not take the request then. The next run asks again."""


@dataclass(slots=True)
class Done:
    """What an output holds already: ids of answered requests, numbers of lines that were found broken, and how many of both
    are no good answers."""

    custom_ids: set[str] = field(default_factory=set)
    broken_lines: set[int] = field(default_factory=set)
    num_failed: int = 0


class AnswerFile:
    """Appends whole lines. Held by one run at a time; a context manager.

    Raises ConfigError when it cannot be written, or another run writes it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _locked(path)

    def __enter__(self) -> AnswerFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def recover(self) -> Done:
        """What is there already. A last line that was cut, and answers that are none, are taken out of the file first."""
        done, size, kept = Done(), 0, []
        with self._path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n") and _take(line, done):
                    kept.append((size, len(line)))
                size += len(line)
            kept_bytes = sum(length for _, length in kept)
            if not kept or kept[-1] == (kept_bytes - kept[-1][1], kept[-1][1]):  # what goes stands at the end
                os.ftruncate(self._file.fileno(), kept_bytes)
            else:
                self._rewrite(file, kept)
        return done

    def _rewrite(self, file: BufferedReader, kept: list[tuple[int, int]]) -> None:
        """The file with the kept (offset, length) alone. It takes the place of the old one when it is complete."""
        spare = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}.tmp")
        copy = _locked(spare)
        for offset, length in kept:
            file.seek(offset)
            _write(copy, file.read(length))
        spare.replace(self._path)
        self._file.close()
        self._file = copy

    def append(self, line: bytes) -> None:
        _write(self._file, line)


def _locked(path: Path) -> FileIO:
    """The file, to append to, which no other run may write now. Raises ConfigError."""
    try:
        file = path.open("ab", buffering=0)
    except OSError as error:
        raise ConfigError(f"--output-file {path}: {error.strerror or error}", param="output_file") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ConfigError(f"--output-file {path}: another run is writing it", param="output_file") from None
    return file


def _write(file: FileIO, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


class AnswerStream:
    """As AnswerFile, to standard output: nothing is there before, and nothing can be gone on with."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def append(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()


def _take(line: bytes, done: Done) -> bool:
    """Note a line of the output; False if it is to be written anew. Raises ConfigError for one that is no answer."""
    try:
        value = msgspec.json.decode(line)
        response, error, custom_id = value["response"], value["error"], value["custom_id"]
        if response is not None and response["status_code"] in PASSING:
            return False
        if error is not None:
            done.broken_lines.add(error["line"])
        else:
            done.custom_ids.add(custom_id)
        done.num_failed += error is not None or response["status_code"] != 200
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        raise ConfigError(
            f"the output file holds a line that is no answer of a batch: {line[:60]!r}; give another --output-file",
            param="output_file",
        ) from None
    return True


def answer_line(custom_id: str, status: int, request_id: str, body: bytes) -> bytes:
    """The line of a request that was answered, whatever the answer says."""
    response = {"status_code": status, "request_id": request_id, "body": msgspec.Raw(body)}
    return _line({"custom_id": custom_id, "response": response, "error": None})


def fault_line(custom_id: str | None, number: int, error: InvalidRequestError) -> bytes:
    """The line of a line of the input that is no request."""
    fault = {"code": "invalid_line", "message": f"line {number}: {error.message}", "param": error.param, "line": number}
    return _line({"custom_id": custom_id, "response": None, "error": fault})


def _line(values: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"id": f"batch_req_{secrets.token_hex(12)}", **values}) + b"\n"
