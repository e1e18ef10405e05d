"""The loop of a process that answers requests of the one that started it, within limits of memory and processor time.

It reads requests from its standard input and writes answers to its standard output until the input ends:

    request: length u32 | marshal of whatever is worked with first, then of (request, seconds of processor time)
    answer:  kind, one byte | length u32 | text, UTF-8 that may hold surrogates

The first answer ("ready") says that requests can come. They come from the process that started this one, so marshal is safe;
answers are not read with it, for what runs here may be a program that somebody else wrote.
"""

from __future__ import annotations

import marshal
import resource
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

MEMORY_BYTES = 1 << 30
LENGTH = struct.Struct("<I")
ANSWER = struct.Struct("<BI")
KINDS = ("ready", "text", "raised", "large", "failed")

Answerer = Callable[[Any], tuple[str, str]]
"""From a request to the kind and the text of its answer."""


def serve(make_answerer: Callable[[Any], Answerer]) -> None:
    """Answer requests until the input ends. make_answerer: from what comes first to what answers the rest."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    answer_of = make_answerer(_read(requests))
    _answer(answers, "ready", "")
    while True:
        try:
            request, cpu_s = _read(requests)
        except EOFError:
            return
        # Should the parent be gone and this one be caught in an endless loop, the kernel ends it.
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + cpu_s, resource.RLIM_INFINITY))
        _answer(answers, *answer_of(request))


def _read(stream: BinaryIO) -> Any:
    """One request. Raises: EOFError at the end of the input."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    return marshal.loads(stream.read(LENGTH.unpack(head)[0]))


def _answer(stream: BinaryIO, kind: str, text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")
    stream.write(ANSWER.pack(KINDS.index(kind), len(content)) + content)
    stream.flush()
