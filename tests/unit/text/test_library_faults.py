"""Faults of libraries, panics of Rust code among them."""

from __future__ import annotations

import pytest

from octavo.errors import InvalidRequestError
from octavo.text.library_faults import is_fault, reason
from octavo.text.tokenizer import Tokenizer

PanicException = type("PanicException", (BaseException,), {})
"""What pyo3 raises when Rust code panics has this name and this base."""


def test_a_panic_is_a_fault_and_a_wish_to_end_is_none() -> None:
    assert is_fault(ValueError()) and is_fault(PanicException())
    assert not any(map(is_fault, (KeyboardInterrupt(), SystemExit(), GeneratorExit())))


def test_a_reason_is_one_line_of_a_bounded_length() -> None:
    assert reason(ValueError("a\n  b")) == "a b" and reason(PanicException()) == "PanicException"
    assert len(reason(ValueError("x" * 10_000))) == 200


@pytest.mark.parametrize("error", [ValueError("no unknown token"), PanicException("index out of bounds")])
def test_a_fault_while_encoding_is_an_error_of_the_request(
    small_tokenizer: object, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    assert callable(small_tokenizer)
    tokenizer: Tokenizer = small_tokenizer("unigram")

    class Broken:
        encode_special_tokens = False

        def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> object:
            raise error

    monkeypatch.setattr(tokenizer, "_backend", Broken())
    with pytest.raises(InvalidRequestError, match=f"cannot encode the text .{error}"):
        tokenizer.encode("hello")
