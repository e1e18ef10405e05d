"""How shares are split into forward passes."""

from __future__ import annotations

import numpy as np

from octavo.sampling_params import SamplingParams
from octavo.worker.batch import ResidentSequence, Segment
from octavo.worker.model_runner import forward_passes


def share(seq_id: int, num_new: int, prompt_rows: int, *, needs_sample: bool = True) -> Segment:
    state = ResidentSequence(seq_id, seq_id, 0, SamplingParams(), np.zeros(0, np.int32), False, False, 0)
    return Segment(state, 10, num_new, needs_sample, prompt_rows)


def facts(shares: list[Segment]) -> list[tuple[int, int, int, bool, int]]:
    return [(s.state.seq_id, s.first, s.num_new, s.needs_sample, s.prompt_logit_rows) for s in shares]


def test_shares_without_prompt_logprobs_are_one_pass() -> None:
    shares = [share(0, 1, 0), share(1, 500, 0, needs_sample=False)]
    assert [facts(found) for found in forward_passes(shares)] == [facts(shares)]


def test_a_long_share_with_prompt_logprobs_is_cut_and_samples_in_its_last_pass() -> None:
    found = [facts(shares) for shares in forward_passes([share(0, 1, 0), share(1, 20, 19), share(2, 3, 0)], 8)]
    assert found == [
        [(0, 10, 1, True, 0), (1, 10, 8, False, 8), (2, 10, 3, True, 0)],
        [(1, 18, 8, False, 8)],
        [(1, 26, 4, True, 3)],
    ]


def test_shares_that_find_no_room_wait_whole() -> None:
    found = [facts(shares) for shares in forward_passes([share(0, 8, 8), share(1, 6, 5)], 8)]
    assert found == [[(0, 10, 8, True, 8)], [(1, 10, 6, True, 5)]]


def test_no_shares_are_no_pass() -> None:
    assert list(forward_passes([])) == []
