"""The swap space in plain Python: what the native one must do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from octavo.ops.reference.attention import KVCache

_Of = TypeVar("_Of")


class SwapSpace:
    """Slots as large as a block of the cache, in memory or, with a descriptor, in an open file from file_offset on."""

    def __init__(self, num_bytes: int, descriptor: int | None, file_offset: int) -> None:
        self._num_bytes = num_bytes
        self._descriptor = descriptor
        self._file_offset = file_offset
        self._memory: dict[int, bytes] = {}

    def out(self, cache: KVCache, moves: Sequence[tuple[int, int]]) -> dict[int, str]:
        """Copy (block, slot) from block to slot. Returns the slots that could not be written, with the reason."""
        return {slot: reason for block, slot in moves if (reason := _reason(self._out, cache, block, slot))}

    def into(self, cache: KVCache, moves: Sequence[tuple[int, int]]) -> dict[int, str]:
        """Copy (block, slot) from slot to block. Returns the blocks that could not be filled, with the reason."""
        return {block: reason for block, slot in moves if (reason := _reason(self._in, cache, block, slot))}

    def resize(self, cache: KVCache, num_bytes: int, moves: Sequence[tuple[int, int]]) -> dict[int, str]:
        """Move from slot to slot, then take another size. Returns the targets that could not be written, with the reason."""
        size = len(cache.read_block(0))
        lost = {target: reason for source, target in moves if (reason := _reason(self._shift, size, source, target))}
        self._num_bytes = num_bytes
        self._memory = {slot: data for slot, data in self._memory.items() if (slot + 1) * size <= num_bytes}
        return lost

    def _out(self, cache: KVCache, block: int, slot: int) -> None:
        self._write(slot, cache.read_block(block))

    def _in(self, cache: KVCache, block: int, slot: int) -> None:
        cache.write_block(block, self._read(slot, len(cache.read_block(block))))

    def _shift(self, size: int, source: int, target: int) -> None:
        self._write(target, self._read(source, size))

    def _write(self, slot: int, data: bytes) -> None:
        offset = self._offset(slot, len(data))
        if self._descriptor is None:
            self._memory[slot] = data
            return
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], offset + written)

    def _read(self, slot: int, size: int) -> bytes:
        offset = self._offset(slot, size)
        if self._descriptor is None:
            return self._memory[slot]
        data = os.pread(self._descriptor, size, offset)
        if len(data) != size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return data

    def _offset(self, slot: int, size: int) -> int:
        assert slot >= 0 and (slot + 1) * size <= self._num_bytes, f"slot {slot} is beyond the swap space"
        return self._file_offset + slot * size


def _reason(move: Callable[[_Of, int, int], None], of: _Of, first: int, second: int) -> str:
    """Make a move; why it could not be made, or "" when it was."""
    try:
        move(of, first, second)
    except OSError as error:
        return error.strerror or str(error)
    return ""
