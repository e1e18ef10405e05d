"""MappedFile: a file's bytes through a read-only memory map, with the facts that identify it."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from octavo.errors import LoadError


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile:
    """One open file. Arrays cut from `data` keep the map alive; pages are read when touched.

    buffer     the map itself; slicing it copies bytes, struct.unpack_from reads in place
    data       the same bytes as a read-only uint8 array [size_bytes]
    mtime_ns   time of last change when opened, nanoseconds
    """

    path: Path
    buffer: mmap.mmap
    data: NDArray[np.uint8]
    size_bytes: int
    mtime_ns: int


def map_file(path: Path) -> MappedFile:
    """Map a whole file. Raises: LoadError naming the file if it is missing, unreadable, empty or no regular file."""
    if path.exists() and not path.is_file():  # opening a pipe would wait for ever
        raise LoadError(f"{path}: is a folder or a device, expected a file")
    try:
        with path.open("rb") as file:
            status = path.stat()
            if status.st_size == 0:
                raise LoadError(f"{path}: the file is empty")
            buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise LoadError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path}: cannot be read ({error})") from None
    data = np.frombuffer(buffer, dtype=np.uint8)
    return MappedFile(path, buffer, data, len(data), status.st_mtime_ns)
