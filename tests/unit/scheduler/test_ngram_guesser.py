"""The n-gram guesser: where its guesses come from, and when it holds on to a place or looks for another one."""

from __future__ import annotations

from tests.fakes import make_sequence

from octavo.scheduler.ngram_guesser import NgramGuesser
from octavo.sequence import Sequence

POEM = list(range(100, 140))


def guesser_of(sequence: Sequence) -> NgramGuesser:
    return NgramGuesser(sequence, 3, 5)


def test_a_text_that_repeats_its_prompt_is_guessed_from_there() -> None:
    sequence = make_sequence(1, [*POEM, 7, 8], output_token_ids=POEM[:3])
    assert guesser_of(sequence).guess(4) == POEM[3:7]


def test_nothing_is_guessed_where_nothing_was_there_before() -> None:
    sequence = make_sequence(1, POEM, output_token_ids=[1, 2, 3, 4])
    assert guesser_of(sequence).guess(4) == []


def test_a_text_that_repeats_its_own_output_is_guessed_from_there() -> None:
    sequence = make_sequence(1, [1, 2], output_token_ids=[5, 6, 7, 8, 9, 5, 6, 7])
    assert guesser_of(sequence).guess(8) == [8, 9, 5, 6, 7]


def test_a_run_goes_on_where_it_is_though_a_later_place_looks_the_same() -> None:
    prompt = [1, 2, 3, 4, 5, 6, 7, 8, 50, 5, 6, 7, 60, 61]
    sequence = make_sequence(1, prompt, output_token_ids=[1, 2, 3])
    guesser = guesser_of(sequence)
    assert guesser.guess(4) == [4, 5, 6, 7]
    sequence.output_token_ids += [4, 5, 6, 7]
    guesser.confirm(4, 4)
    assert guesser.guess(2) == [8, 50]
    sequence.output_token_ids += [9]
    guesser.confirm(0, 1)
    assert guesser.guess(2) == []


def test_behind_a_long_run_a_changed_token_is_skipped() -> None:
    sequence = make_sequence(1, POEM, output_token_ids=POEM[:3])
    guesser = guesser_of(sequence)
    assert guesser.guess(10) == POEM[3:13]
    sequence.output_token_ids += [*POEM[3:12], 9]
    guesser.confirm(9, 10)
    assert guesser.guess(4) == POEM[13:17]
    for token in (1, 2, 3):
        sequence.output_token_ids.append(token)
        guesser.confirm(0, 1)
        last = guesser.guess(4)
    assert last == []


def test_a_prediction_is_guessed_from_the_first_token_on() -> None:
    sequence = make_sequence(1, [1, 2, 3], predicted_token_ids=POEM)
    guesser = guesser_of(sequence)
    assert guesser.guess(3) == POEM[:3]
    sequence.output_token_ids += POEM[:2]
    guesser.confirm(2, 2)
    assert guesser.guess(3) == POEM[2:5]


def test_behind_a_place_where_the_prediction_was_wrong_it_is_found_again() -> None:
    sequence = make_sequence(1, [1, 2, 3], predicted_token_ids=POEM, output_token_ids=[*POEM[:5], 9, 9])
    guesser = guesser_of(sequence)
    assert guesser.guess(3) == []
    sequence.output_token_ids += POEM[6:9]
    assert guesser.guess(3) == POEM[9:12]


def test_a_long_prompt_is_taken_in_over_several_steps() -> None:
    prompt = [*POEM, *range(1000, 31_000)]
    sequence = make_sequence(1, prompt, output_token_ids=POEM[:4])
    guesser = guesser_of(sequence)
    assert guesser.guess(2) == []
    assert guesser.guess(2) == POEM[4:6]
