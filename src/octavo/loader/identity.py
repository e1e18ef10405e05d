"""FileIdentity: which file was opened, cheap enough to ask again before a restart."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import LoadError

EDGE_BYTES = 1 << 20
"""How much of each end of a file goes into its digest: headers lie at the beginning, late changes show at the end."""


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """One file as it was when it was opened. Equal identities: the same content, as far as size, time and both ends tell.

    path      as it was opened
    mtime_ns  time of last change, nanoseconds
    digest    sha256 over the first and the last EDGE_BYTES. No inode: some network file systems invent a new one at will.
    """

    path: str
    size_bytes: int
    mtime_ns: int
    digest: bytes


def identify(path: Path) -> FileIdentity:
    """The identity of the file at `path` now. Raises: LoadError naming the file if it cannot be read."""
    try:
        with path.open("rb") as file:
            return identify_open(file.fileno(), path)
    except OSError as error:
        raise LoadError(f"{path}: cannot be read ({error.strerror or error})") from None


def identify_open(descriptor: int, path: Path) -> FileIdentity:
    """The identity of an open file. Raises: OSError."""
    status = os.fstat(descriptor)
    digest = hashlib.sha256(os.pread(descriptor, EDGE_BYTES, 0))
    if status.st_size > EDGE_BYTES:
        digest.update(os.pread(descriptor, EDGE_BYTES, max(EDGE_BYTES, status.st_size - EDGE_BYTES)))
    return FileIdentity(str(path), status.st_size, status.st_mtime_ns, digest.digest())


def changed_file(opened: Iterable[FileIdentity]) -> str | None:
    """The first file that is no longer what was opened, with what became of it ("PATH was replaced"); None if all are."""
    for identity in opened:
        try:
            now = identify(Path(identity.path))
        except LoadError:
            return f"{identity.path} is gone"
        if now != identity:
            return f"{identity.path} was replaced"
    return None
