"""Faults of libraries, panics of Rust code among them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from octavo.errors import InvalidRequestError, LoadError
from octavo.text.hf_tokenizer import tokenizer_from_folder
from octavo.text.library_faults import is_fault, quiet_panics, reason
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


FOLDER = Path(__file__).parents[2] / "golden" / "text" / "tokenizers" / "gpt2_like"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"normalizer":null', '"normalizer":{"type":"Precompiled","precompiled_charsmap":"AQA="}'),
        ('"continuing_subword_prefix":null', '"continuing_subword_prefix":"a prefix that is longer than all tokens"'),
        (
            '"post_processor":null',
            '"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}},'
            '{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}}',
        ),
    ],
)
def test_a_file_over_which_the_library_panics_is_refused_in_silence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    folder = Path(shutil.copytree(FOLDER, tmp_path / "model"))
    text = json.dumps(json.loads((folder / "tokenizer.json").read_text()), separators=(",", ":"))
    data = text.replace(old, new)
    assert data != text
    (folder / "tokenizer.json").write_text(data)
    with pytest.raises(LoadError, match="tokenizer.json"):
        tokenizer_from_folder(folder)
    assert capfd.readouterr().err == ""


def test_what_others_write_meanwhile_is_handed_on(capfd: pytest.CaptureFixture[str]) -> None:
    report = "thread 'x' (7) panicked at a.rs:1:2:\nout of\nbounds\n"
    for trace in (
        "",
        "note: run with `RUST_BACKTRACE=1` to see\n",
        "stack backtrace:\n   0: f\n      at b.rs\nnote: BACKTRACE\n",
    ):
        with pytest.raises(PanicException), quiet_panics():
            os.write(2, f"before\n\n{report}{trace}after\n".encode())
            raise PanicException("out of\nbounds")
        assert capfd.readouterr().err == "before\nafter\n"
    with pytest.raises(ValueError, match="other"), quiet_panics():
        os.write(2, report.encode())
        raise ValueError("other")
    assert capfd.readouterr().err == report
