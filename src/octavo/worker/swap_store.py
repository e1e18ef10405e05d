"""SwapStore: room for KV blocks outside the cache, in memory or in a file, over what any backend offers."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from octavo.config.cache import GIB
from octavo.errors import ConfigError
from octavo.ops.arrays import U8
from octavo.ops.interface import BlockMemory
from octavo.worker.swap_file import HEADER_BYTES, SwapFile


class SwapStore:
    """Slots for blocks of a KV cache; none until `resize` makes room.

    cache        whose blocks move
    slot_bytes   of one slot: as large as a block of the present cache; slot s begins at s * slot_bytes
    path         of the file it is to lie in; None: in memory
    num_threads  that read and write the file together
    """

    def __init__(self, cache: BlockMemory, slot_bytes: int, path: str | None = None, num_threads: int = 1) -> None:
        self._cache = cache
        self.slot_bytes = slot_bytes
        self.num_bytes = 0
        self._store: MemoryStore | FileStore = MemoryStore() if path is None else FileStore(path, num_threads)

    def resize(self, num_bytes: int) -> None:
        """Room for num_bytes; what lies within the old size and the new one stays. It takes memory, or disk, only as slots are
        written.

        Raises: ConfigError when more than before cannot be had; all is as it was then.
        """
        self._store.resize(num_bytes)
        self.num_bytes = num_bytes

    def out(self, moves: Sequence[tuple[int, int]]) -> dict[int, str]:
        """Copy (block, slot) from the KV cache, in any order; blocks and slots are distinct.

        Returns the slots that could not be written, with the reason.
        """
        self._check(slot for _, slot in moves)
        errors = self._store.out(self._cache, moves, self.slot_bytes)
        return {slot: errors[index] for index, (_, slot) in enumerate(moves) if index in errors}

    def into(self, moves: Sequence[tuple[int, int]]) -> dict[int, str]:
        """Copy (block, slot) to the KV cache; blocks are distinct, slots need not be.

        Returns the blocks that could not be filled, with the reason.
        """
        self._check(slot for _, slot in moves)
        errors = self._store.into(self._cache, moves, self.slot_bytes)
        return {block: errors[index] for index, (block, _) in enumerate(moves) if index in errors}

    def shift(self, moves: Sequence[tuple[int, int]]) -> dict[int, str]:
        """Copy from slot to slot; no target is a source. Returns the targets that could not be written, with the reason."""
        self._check(slot for move in moves for slot in move)
        errors = self._store.shift(moves, self.slot_bytes)
        return {target: errors[index] for index, (_, target) in enumerate(moves) if index in errors}

    def _check(self, slots: Iterable[int]) -> None:
        num_slots = self.num_bytes // self.slot_bytes
        for slot in slots:
            if not 0 <= slot < num_slots:
                raise ValueError(f"slot {slot} is beyond the swap space of {num_slots} slots")


class MemoryStore:
    """Private pages of this process."""

    def __init__(self) -> None:
        self._pages: mmap.mmap | None = None

    def resize(self, num_bytes: int) -> None:
        """What lies within the old size and the new one stays. Raises ConfigError, and all is as it was then."""
        try:
            if num_bytes == 0:
                self._pages = None
            elif self._pages is None:
                self._pages = mmap.mmap(-1, num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            else:
                self._pages.resize(num_bytes)
        except (OSError, OverflowError, ValueError):
            raise ConfigError(
                f"a swap space of {num_bytes / GIB:.3f} GiB cannot be allocated; lower swap_space", param="swap_space"
            ) from None

    def out(self, cache: BlockMemory, moves: Sequence[tuple[int, int]], slot_bytes: int) -> dict[int, str]:
        """Index of each move that could not be made, with the reason: there are none."""
        cache.blocks_to_host(moves, self._slots(slot_bytes))
        return {}

    def into(self, cache: BlockMemory, moves: Sequence[tuple[int, int]], slot_bytes: int) -> dict[int, str]:
        """As `out`."""
        cache.blocks_from_host(moves, self._slots(slot_bytes))
        return {}

    def shift(self, moves: Sequence[tuple[int, int]], slot_bytes: int) -> dict[int, str]:
        """As `out`."""
        slots = self._slots(slot_bytes)
        for source, target in moves:
            slots[target] = slots[source]
        return {}

    def _slots(self, slot_bytes: int) -> U8:
        """uint8 [slots, slot_bytes]. To be dropped before the next `resize`."""
        assert self._pages is not None, "blocks were moved before there was room for them"
        count = len(self._pages) // slot_bytes
        return np.frombuffer(self._pages, np.uint8, count * slot_bytes).reshape(count, slot_bytes)


class FileStore:
    """A file, read and written instead of mapped: a full disk is then an error of one move and not the end of the process.

    Where blocks lie in host memory, they go to the file and back without a copy between.
    """

    def __init__(self, path: str, num_threads: int) -> None:
        self._path = path
        self._num_threads = num_threads
        self._file: SwapFile | None = None
        self._num_bytes = 0
        self._team: ThreadPoolExecutor | None = None

    def resize(self, num_bytes: int) -> None:
        """What lies within the old size and the new one stays. Raises ConfigError, and all is as it was then."""
        if self._file is None:
            self._file = SwapFile(self._path, num_bytes)
        elif num_bytes > self._num_bytes:
            self._file.grow(num_bytes)
        else:
            self._file.shrink(num_bytes)
        self._num_bytes = num_bytes

    def out(self, cache: BlockMemory, moves: Sequence[tuple[int, int]], slot_bytes: int) -> dict[int, str]:
        """Index of each move that could not be made, with the reason."""
        blocks, staged = _host_blocks(cache, moves), np.empty((1, slot_bytes), np.uint8)

        def move(block: int, slot: int) -> None:
            if blocks is None:
                cache.blocks_to_host([(block, 0)], staged)
            self._write(slot, staged[0] if blocks is None else blocks[block])

        return self._errors(moves, move, together=blocks is not None)

    def into(self, cache: BlockMemory, moves: Sequence[tuple[int, int]], slot_bytes: int) -> dict[int, str]:
        """As `out`."""
        blocks, staged = _host_blocks(cache, moves), np.empty((1, slot_bytes), np.uint8)

        def move(block: int, slot: int) -> None:
            self._read(slot, staged[0] if blocks is None else blocks[block])
            if blocks is None:
                cache.blocks_from_host([(block, 0)], staged)

        return self._errors(moves, move, together=blocks is not None)

    def shift(self, moves: Sequence[tuple[int, int]], slot_bytes: int) -> dict[int, str]:
        """As `out`."""
        staged = np.empty(slot_bytes, np.uint8)

        def move(source: int, target: int) -> None:
            self._read(source, staged)
            self._write(target, staged)

        return self._errors(moves, move, together=False)

    def _write(self, slot: int, data: U8) -> None:
        self._transfer(os.pwrite, slot, data)

    def _read(self, slot: int, data: U8) -> None:
        self._transfer(lambda descriptor, rest, offset: os.preadv(descriptor, [rest], offset), slot, data)

    def _transfer(self, call: Callable[[int, memoryview, int], int], slot: int, data: U8) -> None:
        """All bytes of a slot, however many the system takes at a time. Raises OSError."""
        assert self._file is not None, "blocks were moved before there was room for them"
        rest, offset = data.data, HEADER_BYTES + slot * len(data)
        while rest:
            done = call(self._file.descriptor, rest, offset)
            if not done:  # the file ends before the slot: somebody cut it
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            rest, offset = rest[done:], offset + done

    def _errors(self, moves: Sequence[tuple[int, int]], move: Callable[[int, int], None], *, together: bool) -> dict[int, str]:
        """Make all moves, several at a time if `together`. Index of each that could not be made, with the reason."""

        def reason(index: int) -> str:
            try:
                move(*moves[index])
            except OSError as error:
                return error.strerror or str(error)
            return ""

        if together and min(len(moves), self._num_threads) > 1:
            self._team = self._team or ThreadPoolExecutor(self._num_threads, "swap-file")
            reasons = list(self._team.map(reason, range(len(moves))))
        else:
            reasons = [reason(index) for index in range(len(moves))]
        return {index: text for index, text in enumerate(reasons) if text}


def _host_blocks(cache: BlockMemory, moves: Sequence[tuple[int, int]]) -> U8 | None:
    """cache.host_blocks(), with every block of moves among them."""
    blocks = cache.host_blocks()
    if blocks is not None and not all(0 <= block < len(blocks) for block, _ in moves):
        raise ValueError(f"a move names a block that the cache of {len(blocks)} blocks does not have")
    return blocks
