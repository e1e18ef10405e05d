"""Drafts that a grammar forbids are cut before they are computed, and the matcher stands where it stood."""

from __future__ import annotations

import pytest

from octavo.ops.interface import I32
from octavo.sampling_params import SamplingParams
from octavo.step import NewSequence, ScheduledSequence, ShareKind
from octavo.worker.batch import Batch, ResidentSequence, Segment
from octavo.worker.masks import Masks, num_allowed


class CountingMatcher:
    """Allows 10, 11, 12, ... in this order and nothing else; behind `limit` of them it has no mask."""

    limit = 6

    def __init__(self) -> None:
        self.num_accepted = 0

    def accept(self, token_ids: list[int]) -> None:
        for token_id in token_ids:
            if not self.try_accept(token_id):
                raise ValueError("not in the grammar here")

    def try_accept(self, token_id: int) -> bool:
        is_allowed = token_id == 10 + self.num_accepted
        self.num_accepted += is_allowed
        return is_allowed

    def copy(self) -> CountingMatcher:
        copied = type(self)()
        copied.num_accepted = self.num_accepted
        return copied

    def fill_mask(self, mask: I32) -> None:
        if self.num_accepted >= self.limit:
            raise ValueError("the form has met a limit")
        mask[:] = -1

    @property
    def is_complete(self) -> bool:
        return False


def resident(output: list[int], drafts: list[int], *, matched: bool = True) -> tuple[Batch, ResidentSequence]:
    batch = Batch(max_seqs=2, max_tokens=64, max_logits=64, max_model_len=64, block_size=16, num_blocks=8, vocab_size=100)
    new = NewSequence([1, 2, 3, *output], 3, 0, 0, SamplingParams(), [])
    num_new = 3 + len(output) + len(drafts)
    state = batch.update(ScheduledSequence(1, ShareKind.DECODE, 0, num_new, [0, 1], True, new=new, draft_token_ids=drafts))
    if matched:
        state.matcher = CountingMatcher()  # type: ignore[assignment]
    return batch, state


@pytest.mark.parametrize(
    ("output", "drafts", "allowed"),
    [
        ([10, 11], [12, 13, 14], 3),
        ([10, 11], [12, 13, 15, 16], 2),
        ([10, 11], [50, 12], 0),
        ([], [10, 11, 12], 3),
        ([10], [], 0),
    ],
)
def test_drafts_are_cut_at_the_first_that_the_grammar_forbids(output: list[int], drafts: list[int], allowed: int) -> None:
    batch, state = resident(output, drafts)
    assert num_allowed(batch, state, len(drafts)) == allowed
    assert state.matcher is not None and state.matcher.num_accepted in (0, len(output))
    assert num_allowed(batch, state, len(drafts)) == allowed


@pytest.mark.parametrize(("drafts", "failing"), [([12, 13, 14, 15], {-4}), ([12, 13], set()), ([12, 13, 50, 51], set())])
def test_a_limit_met_behind_a_guess_is_the_fault_of_that_row_alone(drafts: list[int], failing: set[int]) -> None:
    """If the guess is wrong nothing has happened; if it is right the answer ends there, as it would without guesses."""
    batch, state = resident([10, 11], drafts)
    masks, failed = Masks(batch, lambda seq_id, num_drafts: -num_drafts if num_drafts else seq_id), dict[int, str]()
    masks.prepare([Segment(state, 4, 1 + len(drafts), True, 0, len(drafts))], failed)
    assert not failed and set(masks.failed_rows) == failing
    assert state.matcher is not None and state.matcher.num_accepted == 2


def test_without_a_grammar_all_drafts_are_computed() -> None:
    batch, state = resident([10], [50, 60], matched=False)
    assert num_allowed(batch, state, 2) == 2


def test_a_matcher_that_cannot_go_on_is_left_to_the_mask_to_report() -> None:
    batch, state = resident([10, 99], [12])
    assert num_allowed(batch, state, 1) == 1
