"""What counts as a right answer to a newcomer's question."""

from __future__ import annotations

import pytest
from first_questions import QUESTIONS, share_right


def test_each_question_has_a_pattern_that_no_empty_answer_meets() -> None:
    assert len(QUESTIONS) == 20
    assert all(share_right(pattern, ["", "I do not know."]) == 0 for pattern in QUESTIONS.values())


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("What is the capital of France?", "The capital of France is Paris.", "La capitale de la France"),
        ("What is 2+2?", "2+2 is 4.", "2+2 is 42."),
        ("What is water made of?", "Oxygen,\nand hydrogen.", "Oxygen."),
        ("How many days are in a week?", "Seven days.", "There are 70."),
    ],
)
def test_the_share_counts_right_answers(question: str, right: str, wrong: str) -> None:
    assert share_right(QUESTIONS[question], [right, wrong, wrong, right]) == 0.5
