"""The swap space in plain Python: what the native one must do."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from octavo.ops.reference.attention import KVCache


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

    def _out(self, cache: KVCache, block: int, slot: int) -> None:
        data = cache.read_block(block)
        offset = self._offset(slot, len(data))
        if self._descriptor is None:
            self._memory[slot] = data
            return
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], offset + written)

    def _in(self, cache: KVCache, block: int, slot: int) -> None:
        size = len(cache.read_block(block))
        offset = self._offset(slot, size)
        if self._descriptor is None:
            data = self._memory[slot]
        else:
            data = os.pread(self._descriptor, size, offset)
            if len(data) != size:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        cache.write_block(block, data)

    def _offset(self, slot: int, size: int) -> int:
        assert slot >= 0 and (slot + 1) * size <= self._num_bytes, f"slot {slot} is beyond the swap space"
        return self._file_offset + slot * size


def _reason(move: Callable[[KVCache, int, int], None], cache: KVCache, block: int, slot: int) -> str:
    """Make a move; why it could not be made, or "" when it was."""
    try:
        move(cache, block, slot)
    except OSError as error:
        return error.strerror or str(error)
    return ""
