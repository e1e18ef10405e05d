"""Limits on vocabularies: what the library would multiply or crash on is refused before it is given it."""

from __future__ import annotations

import base64
import json
import math
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import LoadError
from octavo.text.hf_tokenizer import tokenizer_from_folder
from octavo.text.vocabulary_limits import check_charsmap, check_merges, check_pieces, check_scores

FOLDER = Path(__file__).parents[2] / "golden" / "text" / "tokenizers" / "unigram"


def charsmap(trie_bytes: int, texts: bytes) -> bytes:
    return struct.pack("<I", trie_bytes) + bytes(8) + texts


def changed(tmp_path: Path, change: Any) -> Path:
    folder = Path(shutil.copytree(FOLDER, tmp_path / "model"))
    data = json.loads((folder / "tokenizer.json").read_text())
    change(data)
    (folder / "tokenizer.json").write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize("size", [4097, 200_000, 900_000])
def test_a_piece_that_would_overflow_the_stack_is_refused(tmp_path: Path, size: int) -> None:
    folder = changed(tmp_path, lambda data: data["model"]["vocab"].append(["a" * size, -1.0]))
    with pytest.raises(LoadError, match=f"has {size} characters, more than the limit of 4096"):
        tokenizer_from_folder(folder)


def test_pieces_that_are_too_long_together_are_refused() -> None:
    check_pieces(["a" * 4096] * 1024, "x")
    with pytest.raises(LoadError, match="the tokens have 4198400 characters"):
        check_pieces(["a" * 4096] * 1025, "x")


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_refused(score: float) -> None:
    with pytest.raises(LoadError, match="token 1 has the score"):
        check_scores([0.0, score], "x")


@pytest.mark.parametrize(("right", "prefix"), [("\u00e9", "x"), ("\u20acb", "##"), ("\U0001f600", "abc")])
def test_a_merge_that_would_be_cut_within_a_character_is_refused(tmp_path: Path, right: str, prefix: str) -> None:
    model = {"type": "BPE", "vocab": {"a": 0, right: 1}, "merges": [["a", right]], "continuing_subword_prefix": prefix}
    folder = changed(tmp_path, lambda data: data.update(model=model, normalizer=None))
    with pytest.raises(LoadError, match=f"merge 0 does not go with continuing_subword_prefix '{prefix}'"):
        tokenizer_from_folder(folder)
    check_merges([f"a {prefix}{right}", ["a", prefix], ["a", "b"], []], prefix, "x")


def test_a_string_that_no_tokenizer_has_is_refused(tmp_path: Path) -> None:
    token = {"id": 9, "content": "a" * (2 << 20), "special": True, "single_word": False, "lstrip": False, "rstrip": False}
    folder = changed(tmp_path, lambda data: data["added_tokens"].append({**token, "normalized": False}))
    with pytest.raises(LoadError, match="a string of more than 1048576 characters"):
        tokenizer_from_folder(folder)


def test_a_vocabulary_without_an_unknown_token_loads(tmp_path: Path) -> None:
    def forget(data: dict[str, Any]) -> None:
        data["model"] |= {"unk_id": None, "byte_fallback": False}

    assert tokenizer_from_folder(changed(tmp_path, forget)).spec.suffix_ids == tokenizer_from_folder(FOLDER).spec.suffix_ids


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0", charsmap(0, b""), charsmap(9, b""), charsmap(2**31, b""), charsmap(6, b""), charsmap(8, b"a" * 257 + b"\0")],
)
def test_a_charsmap_that_is_damaged_or_makes_texts_huge_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(LoadError, match="charsmap"):
        check_charsmap(content, "x")
    precompiled = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}
    with pytest.raises(LoadError, match="charsmap"):
        tokenizer_from_folder(changed(tmp_path, lambda data: data.update(normalizer=precompiled)))


def test_a_whole_charsmap_is_accepted() -> None:
    check_charsmap(charsmap(8, b"fi\0ss\0"), "x")
