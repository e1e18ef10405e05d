"""SwapFile: the file behind the swap space. It exists while the engine runs, and only its owner may read it.

It begins with a page that says what it is, so that what a killed engine left behind is taken over at the next start, while any
other file of that name is refused and left alone. A lock tells a living engine's file from a dead one's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import weakref
from pathlib import Path

from octavo.errors import ConfigError

HEADER_BYTES = 4096
"""Slots begin after it, at a page border."""
_MAGIC = b"octavo swap space 1\n"


class SwapFile:
    """descriptor is open for reading and writing until `close`, or the end of the process, which also removes the file."""

    def __init__(self, path: str, num_bytes: int) -> None:
        """Create the file, mode 0600, for num_bytes of slots; it takes room on disk only as slots are written.

        Raises: ConfigError naming swap_path: not writable, in use, not a swap file, or less room on the disk than num_bytes.
        """
        self.path = Path(path)
        try:
            self.descriptor = _open(self.path)
        except OSError as error:
            raise ConfigError(
                f"--swap-path {path} cannot be used: {error.strerror}; name a file in a folder that can be written",
                param="swap_path",
            ) from None
        self._finalizer = weakref.finalize(self, _remove, self.path, self.descriptor)
        try:
            self._check_room(num_bytes)
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, _MAGIC.ljust(HEADER_BYTES, b"\0"), 0)
            os.ftruncate(self.descriptor, HEADER_BYTES + num_bytes)
        except OSError as error:
            self.close()
            raise ConfigError(f"--swap-path {path} cannot be written: {error.strerror}", param="swap_path") from None
        except ConfigError:
            self.close()
            raise

    def grow(self, num_bytes: int) -> None:
        """Room for num_bytes of slots, more than before. Raises ConfigError as when it was made; it is as it was then."""
        self._check_room(num_bytes)
        try:
            os.ftruncate(self.descriptor, HEADER_BYTES + num_bytes)
        except OSError as error:
            raise ConfigError(f"--swap-path {self.path} cannot grow: {error.strerror}", param="swap_space") from None

    def shrink(self, num_bytes: int) -> None:
        """Give back what lies beyond num_bytes of slots. A file that cannot be cut takes more room than it needs, no more."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, HEADER_BYTES + num_bytes)

    def close(self) -> None:
        """Remove the file and give back its room. Safe to call twice."""
        self._finalizer()

    def _check_room(self, num_bytes: int) -> None:
        disk = os.fstatvfs(self.descriptor)
        free = disk.f_bavail * disk.f_frsize + os.fstat(self.descriptor).st_blocks * 512
        if num_bytes + HEADER_BYTES > free:
            raise ConfigError(
                f"--swap-path {self.path}: --swap-space needs {num_bytes / 2**30:.3f} GiB, the disk has {free / 2**30:.3f} GiB "
                f"free; lower --swap-space or name a file elsewhere",
                param="swap_space",
            )


def _open(path: Path) -> int:
    """An exclusively locked descriptor of a new file, or of one that a dead engine left. Raises OSError or ConfigError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        status = os.fstat(descriptor)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not is_ours or (status.st_size and os.pread(descriptor, len(_MAGIC), 0) != _MAGIC):
            raise ConfigError(
                f"--swap-path {path} exists and is no swap file of this user; it was left as it is: name another file",
                param="swap_path",
            )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"--swap-path {path} is in use by another engine; give each engine a file of its own", param="swap_path"
            ) from None
        os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _remove(path: Path, descriptor: int) -> None:
    """Remove the file, unless the name belongs to another one by now."""
    try:
        if os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False)):
            os.unlink(path)
    except OSError:
        pass  # it is gone already, or the folder is: nothing is left to remove
    finally:
        os.close(descriptor)
