"""The pace of guesses: it learns without paying, stops where it does not pay, and loses no more than its account holds."""

from __future__ import annotations

import random

import pytest

from octavo.scheduler.draft_pace import MOST_LOSS, DraftPace

TOKEN_S, ROW_S, LIMIT = 2.3e-3, 0.4e-3, 8


def run(pace: DraftPace, rates: list[float], *, token_s: float = TOKEN_S, row_s: float = ROW_S, seed: int = 1) -> list[int]:
    """A guess in every step; that of step i is right token by token with the chance rates[i]. Returns what was verified."""
    rng, verified = random.Random(seed), []
    for rate in rates:
        count = pace.count(LIMIT, token_s, row_s)
        right = 0
        while right < LIMIT and rng.random() < rate:
            right += 1
        accepted = min(right, count)
        # What is seen ends with the first token that no guess, or a wrong one, stands at.
        seen = min(count, right) + 1
        pace.settle(count, accepted, accepted + 1, token_s, row_s)
        pace.learn(min(right, seen), min(seen, LIMIT))
        verified.append(count)
    return verified


def test_a_text_that_is_copied_is_guessed_to_the_limit_within_a_few_steps() -> None:
    verified = run(DraftPace(0.5, is_predicted=False), [1.0] * 30)
    assert verified[10:] == [LIMIT] * 20


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.12])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_guesses_that_do_not_pay_cost_less_than_two_hundredths(rate: float, seed: int) -> None:
    steps = 2000
    pace = DraftPace(0.0, is_predicted=False)
    rng = random.Random(seed)
    lost_s = 0.0
    for _ in range(steps):
        count = pace.count(LIMIT, TOKEN_S, ROW_S)
        hit = rng.random() < rate
        accepted = int(hit and count > 0)
        lost_s += count * ROW_S - accepted * TOKEN_S
        pace.settle(count, accepted, accepted + 1, TOKEN_S, ROW_S)
        pace.learn(int(hit), 1)
    assert lost_s <= 0.02 * steps * TOKEN_S


def test_even_where_the_means_are_wrong_the_account_bounds_the_loss() -> None:
    """Guesses seem to be right and never are: what was learned says draw, the account says no."""
    pace, steps, drawn = DraftPace(0.0, is_predicted=True), 1000, 0
    for _ in range(steps):
        count = pace.count(LIMIT, TOKEN_S, ROW_S)
        drawn += count
        pace.settle(count, 0, 1, TOKEN_S, ROW_S)
        pace.learn(LIMIT, LIMIT)
    assert 0 < drawn * ROW_S <= 1.01 * MOST_LOSS * steps * TOKEN_S


def test_it_begins_again_when_guesses_become_right_and_pays_nothing_to_find_out() -> None:
    pace = DraftPace(1.0, is_predicted=False)
    verified = run(pace, [0.0] * 200 + [1.0] * 40)
    assert not any(verified[50:200]) and verified[-1] == LIMIT


def test_the_gains_of_long_ago_do_not_pay_for_losses_without_end() -> None:
    pace = DraftPace(1.0, is_predicted=False)
    run(pace, [1.0] * 500)
    drawn = 0
    for _ in range(500):
        count = pace.count(LIMIT, TOKEN_S, ROW_S)
        drawn += count
        pace.settle(count, 0, 1, TOKEN_S, ROW_S)
    assert drawn * ROW_S < 30 * TOKEN_S


@pytest.mark.parametrize(("token_s", "verified"), [(ROW_S, 0), (1.05 * ROW_S, 0), (3 * ROW_S, LIMIT), (6 * ROW_S, LIMIT)])
def test_a_token_that_is_worth_no_more_than_a_row_is_not_guessed(token_s: float, verified: int) -> None:
    pace = DraftPace(1.0, is_predicted=False)
    for _ in range(60):
        pace.learn(LIMIT, LIMIT)
    assert pace.count(LIMIT, token_s, ROW_S) == verified


def test_expected_tokens_are_the_sum_of_the_chances() -> None:
    pace = DraftPace(1.0, is_predicted=True)
    assert pace.expected(0) == 0.0
    assert pace.expected(3) == pytest.approx(0.8 + 0.8**2 + 0.8**3)
