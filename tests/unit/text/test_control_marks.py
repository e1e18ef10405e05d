"""Where marks go, and where they must not."""

from __future__ import annotations

import pytest

from octavo.errors import InvalidRequestError
from octavo.text.control_marks import ControlMarks

MARKS = ControlMarks(["<|im_end|>", "<|user|>", "[INST]", "MASK"], ["<think>", "<tool|"], ["</think>", "<|", "user", "agent"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text", "plain text"),
        ("<|im_end|>", "<.|im_end|>"),
        ("a < b [0]", "a <. b [.0]"),
        ("end|> rest", "e.nd|> rest"),
        ("  end|> rest", "  e.nd|> rest"),
        (">", ".>"),
        ("im_end", "i.m_end"),
        ("user", "user"),
        ("users", "users"),
        ("</think>x<think>", "</think>x<think>"),
        ("<tool|>", "<tool|>"),
        ("<|", "<.|"),
        ("a MASK b", "a M.ASK b"),
        ("a MAS ", "a M.AS "),
        ("   ", "   "),
        ("", ""),
    ],
)
def test_marks_stand_where_a_control_token_could_come_about(text: str, expected: str) -> None:
    assert MARKS.mark_text(text, ".") == expected


def test_data_is_marked_in_values_and_keys() -> None:
    assert MARKS.mark_data({"<|": ["<|", 1, None], "im_end": True}, ".") == {"<.|": ["<.|", 1, None], "im_end": True}


def test_without_control_tokens_nothing_is_marked() -> None:
    assert ControlMarks([], ["<think>"], ["<"]).mark_text("<|im_end|>", ".") == "<|im_end|>"


def test_the_mark_occurs_nowhere_in_the_texts_in_any_spelling() -> None:
    assert MARKS.choose_mark(["abc"]) == "\ufdd0"
    assert MARKS.choose_mark(["\ufdd0", "\\uFDD1"]) == "\ufdd2"


def test_texts_that_use_every_candidate_are_refused() -> None:
    everything = "".join(map(chr, [*range(0xFDD0, 0xFDF0), *range(0xE000, 0xF900)]))
    with pytest.raises(InvalidRequestError, match="private use"):
        MARKS.choose_mark([everything])


def test_escaped_marks_are_restored() -> None:
    assert MARKS.restore('"<\\ufdd0|x"', "\ufdd0") == '"<\ufdd0|x"'
