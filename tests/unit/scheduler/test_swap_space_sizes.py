"""The swap space gets other sizes while sequences swap: the books agree, no token differs, no more is lost than has to be."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.scheduler.checking_worker import Rig, make_sequence
from tests.unit.scheduler.histories import tokens_alone

BLOCK_SIZE = 4


def resize(rig: Rig, num_slots: int, seen: Counter[str]) -> None:
    manager, before = rig.manager, rig.manager.stats()
    plan = rig.reconfigure(rig.config, manager.num_blocks, BLOCK_SIZE, num_slots)
    after = manager.stats()
    assert rig.manager is manager and not plan.victims and after.num_swap_blocks == num_slots
    if not rig.worker.bad_slots:
        assert after.num_swapped == min(before.num_swapped, num_slots)
    seen["grown in use"] += before.num_swapped > 0 and num_slots > before.num_swap_blocks
    seen["shifted"] += len(plan.slots.moves) if plan.slots is not None else 0
    seen["lost"] += before.num_swapped - after.num_swapped
    seen["moved in"] += rig.worker.num_moves_in > 0


def test_sizes_change_at_any_step() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=60, deadline=None)
    @given(
        num_blocks=st.integers(6, 10),
        lengths=st.lists(st.integers(1, 12), min_size=4, max_size=8),
        sizes=st.lists(st.integers(0, 24), min_size=1, max_size=8),
        every=st.integers(1, 4),
        caching=st.booleans(),
        stem=st.integers(0, 1),
        bad_slots=st.sampled_from([(), (), (0, 2)]),
    )
    def history(
        num_blocks: int,
        lengths: list[int],
        sizes: list[int],
        every: int,
        caching: bool,
        stem: int,
        bad_slots: tuple[int, ...],
    ) -> None:
        rig = Rig(
            num_blocks, BLOCK_SIZE, caching=caching, max_model_len=24, num_swap_blocks=20, admission="eager", max_num_seqs=5
        )
        rig.worker.bad_slots = set(bad_slots)
        sequences = [
            make_sequence(seq_id, [stem * seq_id] * length, 24 - length, stop_token_ids=[])
            for seq_id, length in enumerate(lengths)
        ]
        rig.add(*sequences)
        num_steps = 0
        while rig.scheduler.has_work():
            rig.step()
            num_steps += 1
            assert num_steps < 2000, "no progress"
            if num_steps % every == 0:
                resize(rig, sizes[num_steps // every % len(sizes)], seen)
        rig.finish()
        for sequence in sequences:
            assert sequence.output_token_ids == tokens_alone(sequence, 24)

    history()
    assert min(seen[name] for name in ("grown in use", "shifted", "lost", "moved in")) > 10, seen
