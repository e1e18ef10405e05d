"""OpenFile: a model file whose header is read by calls; MappedFile: its data through a read-only memory map.

Reading a page of a map that lies beyond the end of its file ends a process with SIGBUS, and a file may be cut short at any
time. So headers are read, never mapped, and a map has a guard (native/runtime/file_guard.h): such a page reads as zeros, and
`MappedFile.was_cut` tells. Who has read weights asks Checkpoint.check_unchanged before it uses them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from octavo import _native
from octavo.errors import LoadError
from octavo.loader.identity import FileIdentity, identify_open


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file that is not empty, open for reading."""

    path: Path
    descriptor: int
    size_bytes: int

    def read(self, start: int, size: int) -> bytes:
        """Exactly `size` bytes from `start`. Raises: LoadError if the file ends before, or cannot be read."""
        pieces: list[bytes] = []
        while size > 0:
            try:
                piece = os.pread(self.descriptor, size, start)
            except OSError as error:
                raise LoadError(f"{self.path}: cannot be read ({error.strerror or error})") from None
            if not piece:
                raise LoadError(f"{self.path}: ends at byte {start}, but had {self.size_bytes} when it was opened")
            pieces.append(piece)
            start, size = start + len(piece), size - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile:
    """The bytes of one file. Arrays cut from `data` keep the map alive; pages are read when touched.

    data      a read-only uint8 array [size_bytes]
    identity  what was opened, to be compared later
    """

    path: Path
    data: NDArray[np.uint8]
    size_bytes: int
    identity: FileIdentity
    guard: _native.FileGuard

    @property
    def was_cut(self) -> bool:
        """Whether bytes were wanted that could not be had: the file was cut short, or its disk failed."""
        return self.guard.was_cut


class _GuardedMap(mmap.mmap):
    """A map that holds its guard, so that the guard lives as long as the last array cut from it, and no longer."""

    guard: _native.FileGuard


@contextmanager
def open_file(path: Path) -> Iterator[OpenFile]:
    """Open a file for the length of a block. Raises: LoadError if it is missing, unreadable, empty or no regular file."""
    if path.exists() and not path.is_file():  # opening a pipe would wait for ever
        raise LoadError(f"{path}: is a folder or a device, expected a file")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise LoadError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path}: cannot be read ({error})") from None
    with file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes == 0:
            raise LoadError(f"{path}: the file is empty")
        yield OpenFile(path, file.fileno(), size_bytes)


def map_file(file: OpenFile) -> MappedFile:
    """Map as many bytes as the file had when it was opened. Raises: LoadError if it is shorter by now or cannot be mapped."""
    try:
        identity = identify_open(file.descriptor, file.path)
        buffer = _GuardedMap(file.descriptor, file.size_bytes, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise LoadError(f"{file.path}: cannot be read ({error})") from None
    data = np.frombuffer(buffer, dtype=np.uint8)
    buffer.guard = _native.FileGuard(data)
    return MappedFile(file.path, data, file.size_bytes, identity, buffer.guard)
