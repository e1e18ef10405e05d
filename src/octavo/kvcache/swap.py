"""SwapSpace: what preempted sequences left behind, and which of it has to move. Pure: block and slot ids, never bytes.

A preempted sequence gives all its blocks back, but the swap space remembers which of them hold its tokens. Nothing is copied
yet: only when such a block is about to be granted to another sequence, its content moves to a slot of the swap space first.
Blocks are reused from the end of a sequence, so a short shortage moves only its tail, and what nobody needed in the meantime is
simply taken back.

A place is where the content of one block of tokens lies: block id b >= 0 on the device, or slot s, written as ~s (below 0).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from octavo.config.cache import blocks_for
from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.prefix_cache import PrefixCache


@dataclass(slots=True)
class Kept:
    """What a sequence without a block table still has: places of its leading blocks, which hold num_tokens tokens."""

    places: list[int]
    num_tokens: int


@dataclass(frozen=True, slots=True)
class SlotMoves:
    """How the swap space gets another size: moves are (slot, slot) pairs whose targets are free, or among the lost."""

    num_slots: int
    lost: list[int]
    moves: list[tuple[int, int]]


@dataclass(slots=True)
class _Owners:
    """The sequences that keep one place. It has the same index in all of them: content depends on all tokens before it."""

    index: int
    seq_ids: list[int] = field(default_factory=list)


class SwapSpace:
    """num_slots slots, each as large as a block; 0 is no swap space.

    Slots are shared like blocks: sequences with one beginning need it in one slot only, and a slot nobody keeps any more can
    still be found by its digest until it is reused. A slot that a step reads or writes stays taken until `end_step`: all moves
    out of a step happen before all moves in, in any order among themselves.
    """

    def __init__(self, num_slots: int, block_size: int) -> None:
        self._block_size = block_size
        self._slots = BlockPool(num_slots)
        self._cache = PrefixCache(num_slots, block_size)
        self._kept: dict[int, Kept] = {}
        self._owners: dict[int, _Owners] = {}
        """By place."""
        self._num_blocks_kept = 0
        """Blocks on the device among them: so many slots may still be needed."""
        self._held: list[int] = []
        self._sealed: deque[tuple[list[int], list[tuple[int, int]]]] = deque()
        """_held and moves_in of the steps that are planned and not ended, oldest first."""
        self.moves_out: list[tuple[int, int]] = []
        """This step's (block, slot) pairs, device to swap space."""
        self.moves_in: list[tuple[int, int]] = []
        """This step's (block, slot) pairs, swap space to device."""

    @property
    def num_slots(self) -> int:
        return self._slots.num_blocks

    @property
    def num_used(self) -> int:
        """Slots that a preempted or waiting sequence keeps, or that this step reads or writes."""
        return self._slots.num_used

    @property
    def high_water(self) -> int:
        """Most slots used at once, since the space got its present size."""
        return self._slots.high_water

    @property
    def num_cached(self) -> int:
        """Slots that can be found by their content."""
        return len(self._cache)

    def seq_ids(self) -> set[int]:
        """The sequences that keep something."""
        return set(self._kept)

    def owns(self, block_id: int) -> bool:
        """Whether a sequence without a table keeps this block."""
        return block_id in self._owners

    def find(self, digest: bytes) -> int | None:
        """The slot with this content, if there is one."""
        return self._cache.find(digest)

    def has_room_for(self, places: Iterable[int]) -> bool:
        """Whether there are slots for all of these blocks, beside those already promised to others."""
        num_new = sum(1 for place in places if place >= 0 and place not in self._owners)
        return self._num_blocks_kept + num_new <= self._slots.num_free

    def places(self, seq_id: int, max_tokens: int) -> tuple[list[int], int]:
        """(places, tokens they hold) of what the sequence kept, up to max_tokens. Empty when it kept nothing."""
        kept = self._kept.get(seq_id)
        if kept is None:
            return [], 0
        num_tokens = min(kept.num_tokens, max_tokens)
        return kept.places[: blocks_for(num_tokens, self._block_size)], num_tokens

    def keep(self, seq_id: int, places: Sequence[int], num_tokens: int) -> None:
        """Remember the places of a sequence that has no table (any more); see `has_room_for` first."""
        assert seq_id not in self._kept, f"sequence {seq_id} keeps blocks already"
        for index, place in enumerate(places):
            if place < 0:
                self._slots.share(~place)
            elif place not in self._owners:
                self._num_blocks_kept += 1
            self._owners.setdefault(place, _Owners(index)).seq_ids.append(seq_id)
        self._kept[seq_id] = Kept(list(places), num_tokens)

    def forget(self, seq_id: int) -> list[int]:
        """The sequence needs nothing any more. Returns the blocks that nobody keeps now, last first."""
        kept = self._kept.pop(seq_id, None)
        return [] if kept is None else self._disown(seq_id, kept.places)

    def vacate(self, block_id: int, digest: bytes | None) -> None:
        """The block was granted to another sequence: what it holds moves to a slot, or its keepers lose it."""
        is_pending = any(target == block_id for target, _ in self.moves_in)
        if is_pending:
            # What was to be moved into it is not wanted any more. Its content would come only after all moves out.
            self.moves_in = [move for move in self.moves_in if move[0] != block_id]
        owners = self._owners.get(block_id)
        if owners is None:
            return
        slot = self._slot_for(block_id, digest) if not is_pending else None
        if slot is None:
            self.lose(block_id)
            return
        self._num_blocks_kept -= 1
        del self._owners[block_id]
        target = self._owners.setdefault(~slot, _Owners(owners.index))
        for seq_id in owners.seq_ids:
            self._kept[seq_id].places[owners.index] = ~slot
            self._slots.share(slot)
        target.seq_ids += owners.seq_ids

    def hold(self, slot: int) -> None:
        """Keep the slot as it is until `end_step`."""
        self._slots.share(slot)
        self._held.append(slot)

    def move_in(self, slot: int, block_id: int) -> bytes | None:
        """Plan the way back into a fresh block; the slot is held. Others that keep the slot keep the block from now on.

        Returns the digest of the content, if it has one.
        """
        self.moves_in.append((block_id, slot))
        owners = self._owners.pop(~slot, None)
        if owners is not None:
            for seq_id in owners.seq_ids:
                self._kept[seq_id].places[owners.index] = block_id
                self._release(slot)
            self._owners[block_id] = owners
            self._num_blocks_kept += 1
        return self._cache.digests[slot]

    def lose(self, place: int) -> None:
        """The content of a place is gone: its keepers keep only what stands before it."""
        owners = self._owners.get(place)
        for seq_id in list(owners.seq_ids) if owners is not None else ():
            kept, index = self._kept[seq_id], self._owners[place].index
            lost = kept.places[index:]
            del kept.places[index:]
            kept.num_tokens = min(kept.num_tokens, index * self._block_size)
            if not kept.places:
                del self._kept[seq_id]
            self._disown(seq_id, lost)
        if place < 0:
            self._cache.evict(~place)

    def lose_move_in(self, block_id: int) -> None:
        """The oldest sealed step could not fill the block; its slot is not to be found again either, or it would fail for
        ever."""
        self.lose(block_id)
        for target, slot in self._sealed[0][1]:
            if target == block_id:
                self.lose(~slot)

    def seal_step(self) -> None:
        """The step is planned. What is asked for from now on belongs to the next one."""
        self._sealed.append((self._held, self.moves_in))
        # New lists: the plan of the step has the old ones.
        self._held, self.moves_out, self.moves_in = [], [], []

    def end_step(self) -> None:
        """The moves of the oldest sealed step have been made, or will never be."""
        held, _ = self._sealed.popleft()
        for slot in held:
            self._release(slot)

    def plan_resize(self, num_slots: int) -> SlotMoves:
        """What is lost and what moves when there are to be num_slots; between two steps. Changes nothing.

        Of what does not fit the ends are lost before the beginnings, without which they would be of no use.
        """
        assert not self._held and not self._sealed, "slots are being read or written"
        used = [slot for slot, count in enumerate(self._slots.ref_counts) if count]
        used.sort(key=lambda slot: self._owners[~slot].index)
        kept, lost = used[:num_slots], used[num_slots:]
        vacant = [slot for slot in [*self._slots.free_order(), *lost] if slot < num_slots]
        return SlotMoves(num_slots, lost, list(zip([slot for slot in kept if slot >= num_slots], vacant, strict=False)))

    def resize(self, plan: SlotMoves, failed: Iterable[int] = ()) -> None:
        """Do what was planned just now. Keepers of lost slots, and of targets that `failed`, keep what stands before them."""
        for slot in plan.lost:
            self.lose(~slot)
        target_of, old_slots, digests = dict(plan.moves), self._slots, self._cache.digests
        self._slots, self._cache = BlockPool(plan.num_slots), PrefixCache(plan.num_slots, self._block_size)
        overwritten = set(target_of.values())
        for slot in old_slots.free_order():
            digest = digests[slot]
            if digest is not None and slot < plan.num_slots and slot not in overwritten:
                self._cache.insert(digest, slot)
                self._slots.share(slot)
                self._slots.release(slot, keep=True)
        self._slots.high_water = 0
        for slot in [slot for slot, count in enumerate(old_slots.ref_counts) if count]:
            target, owners = target_of.get(slot, slot), self._owners.pop(~slot)
            self._owners[~target] = owners
            for seq_id in owners.seq_ids:
                self._kept[seq_id].places[owners.index] = ~target
                self._slots.share(target)
            digest = digests[slot]
            if digest is not None:
                self._cache.insert(digest, target)
        for slot in failed:
            self.lose(~slot)

    def check_integrity(self) -> None:
        """Raise AssertionError unless keepers, places and slots agree."""
        self._slots.check_integrity()
        self._cache.check_integrity()
        users = Counter([*self._held, *(slot for held, _ in self._sealed for slot in held)])
        for seq_id, kept in self._kept.items():
            most = len(kept.places) * self._block_size
            assert most - self._block_size < kept.num_tokens <= most, f"sequence {seq_id} keeps {kept}"
            users.update(~place for place in kept.places if place < 0)
            for index, place in enumerate(kept.places):
                owners = self._owners[place]
                assert owners.index == index and owners.seq_ids.count(seq_id) == 1, f"{owners} of place {place}: {seq_id}"
        for slot, count in enumerate(self._slots.ref_counts):
            assert count == users[slot], f"slot {slot} has ref count {count} but {users[slot]} users"
        num_owned = sum(len(owners.seq_ids) for owners in self._owners.values())
        assert num_owned == sum(len(kept.places) for kept in self._kept.values()), "a place is owned by a sequence without it"
        num_blocks = sum(place >= 0 for place in self._owners)
        assert num_blocks == self._num_blocks_kept, f"{num_blocks} blocks are kept, {self._num_blocks_kept} were counted"

    def _slot_for(self, block_id: int, digest: bytes | None) -> int | None:
        """A held slot that has, or is about to get, the block's content; None when no slot is free."""
        slot = self._cache.find(digest) if digest is not None else None
        if slot is not None:
            self.hold(slot)
            return slot
        if self._slots.num_free == 0:
            return None
        slot = self._slots.allocate()
        self._held.append(slot)
        self._cache.evict(slot)
        if digest is not None:
            self._cache.insert(digest, slot)
        self.moves_out.append((block_id, slot))
        return slot

    def _disown(self, seq_id: int, places: list[int]) -> list[int]:
        """Take a sequence that is no longer in _kept, or no longer with these places, from their owners."""
        idle: list[int] = []
        for place in reversed(places):
            owners = self._owners[place]
            owners.seq_ids.remove(seq_id)
            if place < 0:
                self._release(~place)
            if not owners.seq_ids:
                del self._owners[place]
                if place >= 0:
                    self._num_blocks_kept -= 1
                    idle.append(place)
        return idle

    def _release(self, slot: int) -> None:
        self._slots.release(slot, keep=self._cache.digests[slot] is not None)
