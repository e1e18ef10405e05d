"""Ids and texts equal transformers' on the golden corpus; bytes of tokens join to the text."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from octavo.errors import ContextLengthError, InvalidRequestError
from octavo.text.load import load_tokenizer
from octavo.text.tokenizer import Tokenizer, TokenizerSpec

ByName = Callable[[str], Tokenizer]
SMALL_TOKENIZERS = ("gpt2_like", "qwen2_like", "llama3_like", "llama_legacy", "llama_metaspace", "gemma_like", "unigram")
MARK = "\ufdd0"


def _assert_matches(tokenizer: Tokenizer, golden: dict[str, Any], documents: dict[str, str]) -> None:
    assert golden.keys() == documents.keys()
    for title, text in documents.items():
        ids, expected = tokenizer.encode(text), golden[title]
        assert ids == expected.get("full", ids), title
        assert len(ids) == expected["count"], title
        assert hashlib.sha256(np.array(ids, "<i4").tobytes()).hexdigest() == expected["ids"], title
        assert hashlib.sha256(tokenizer.decode(ids).encode()).hexdigest() == expected["text"], title


def test_the_corpus_is_the_one_the_golden_files_were_made_from(
    documents: dict[str, str], golden_tokens: dict[str, Any]
) -> None:
    assert hashlib.sha256("".join(documents.values()).encode()).hexdigest() == golden_tokens["corpus"]
    assert sum(len(text.encode()) for text in documents.values()) > 250_000


@pytest.mark.parametrize("name", SMALL_TOKENIZERS)
def test_ids_and_text_of_folder_tokenizers_equal_transformers(
    name: str, small_tokenizer: ByName, golden_tokens: dict[str, Any], documents: dict[str, str]
) -> None:
    _assert_matches(small_tokenizer(name), golden_tokens["tokenizers"][name], documents)


def test_ids_and_text_of_smollm2_equal_transformers(
    smollm2_gguf: Path, golden_tokens: dict[str, Any], documents: dict[str, str]
) -> None:
    tokenizer = load_tokenizer(smollm2_gguf)
    _assert_matches(tokenizer, golden_tokens["tokenizers"]["smollm2"], documents)
    assert (tokenizer.vocab_size, tokenizer.bos_token_id, tokenizer.adds_bos) == (49152, 1, False)
    assert 2 in tokenizer.eos_token_ids
    assert len(tokenizer.special_token_ids) == 17


def test_ids_and_text_of_gemma3_equal_transformers(
    gemma3_gguf: Path, golden_tokens: dict[str, Any], documents: dict[str, str]
) -> None:
    tokenizer = load_tokenizer(gemma3_gguf)
    _assert_matches(tokenizer, golden_tokens["tokenizers"]["gemma3"], documents)
    assert (tokenizer.vocab_size, tokenizer.bos_token_id, tokenizer.adds_bos) == (262144, 2, True)
    assert set(tokenizer.eos_token_ids) == {1, 106}


@pytest.mark.parametrize("name", SMALL_TOKENIZERS)
def test_token_bytes_join_to_the_decoded_text(name: str, small_tokenizer: ByName, documents: dict[str, str]) -> None:
    tokenizer = small_tokenizer(name)
    for title in ("mixed", "emoji", "controls", "edge 5"):
        ids = tokenizer.encode(documents[title], add_special_tokens=False)
        joined = b"".join(map(tokenizer.token_bytes, ids))
        assert tokenizer.tokens_to_bytes(ids, at_start=False) == joined
        assert tokenizer.decode(ids) == joined.decode("utf-8", "replace").removeprefix(
            " " if tokenizer.strips_leading_space else ""
        )


@pytest.fixture(params=["llama3_like", "llama_legacy", "llama_metaspace", "gemma_like"])
def with_bos(request: pytest.FixtureRequest, small_tokenizer: ByName) -> Iterator[Tokenizer]:
    yield small_tokenizer(request.param)


def test_there_is_exactly_one_bos_even_if_the_text_begins_with_its_marker(with_bos: Tokenizer) -> None:
    marker = with_bos.spec.special_tokens["bos_token"]
    for text in ("hello", marker + "hello", marker, ""):
        ids = with_bos.encode(text)
        assert with_bos.bos_token_id is not None and ids.count(with_bos.bos_token_id) == 1
        assert ids[0] == with_bos.bos_token_id
    assert with_bos.bos_token_id not in with_bos.encode("hello", add_special_tokens=False)


def test_suffix_is_added_once(small_tokenizer: ByName) -> None:
    tokenizer = small_tokenizer("unigram")
    eos = tokenizer.eos_token_ids[0]
    assert tokenizer.encode("hello")[-1] == eos
    assert tokenizer.encode("hello</s>").count(eos) == 1


@pytest.mark.parametrize("name", SMALL_TOKENIZERS)
def test_without_parse_special_no_control_token_comes_out(name: str, small_tokenizer: ByName) -> None:
    tokenizer = small_tokenizer(name)
    text = "a".join(tokenizer.added_tokens[i] for i in sorted(tokenizer.special_token_ids))
    plain = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
    unknown = {tokenizer.token_to_id("<unk>")}
    assert not (set(plain) & tokenizer.special_token_ids) - unknown
    assert tokenizer.decode(plain) == text
    parsed = tokenizer.encode(text, add_special_tokens=False)
    assert set(parsed) >= tokenizer.special_token_ids


def test_marked_control_text_is_plain_and_everything_else_is_unchanged(small_tokenizer: ByName) -> None:
    tokenizer = small_tokenizer("qwen2_like")
    plain = tokenizer.encode("x <|im_end|> y", add_special_tokens=False, parse_special=False)
    assert tokenizer.encode_marked(f"x <{MARK}|im_end|> y", MARK) == plain
    assert tokenizer.encode_marked(f"<|im_end|>a{MARK}b", MARK) == tokenizer.encode("<|im_end|>ab")
    assert tokenizer.encode("still <|im_end|> parsed")[-3:] != plain[-3:]


def test_a_lone_surrogate_is_refused_with_its_place(small_tokenizer: ByName) -> None:
    with pytest.raises(InvalidRequestError, match=r"U\+D83D at character 2") as caught:
        small_tokenizer("gpt2_like").encode("ab\ud83d")
    assert caught.value.code == "invalid_unicode"


def test_ids_outside_the_vocabulary_have_no_bytes(small_tokenizer: ByName) -> None:
    tokenizer = small_tokenizer("gpt2_like")
    assert tokenizer.token_bytes(tokenizer.vocab_size) == b""
    assert tokenizer.token_bytes(-1) == b""
    assert tokenizer.decode([tokenizer.vocab_size + 5]) == ""


def test_special_tokens_are_skipped_or_shown(small_tokenizer: ByName) -> None:
    tokenizer = small_tokenizer("qwen2_like")
    ids = tokenizer.encode("a<|im_end|>b<think>c")
    assert tokenizer.decode(ids) == "ab<think>c"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "a<|im_end|>b<think>c"


def test_only_the_start_of_a_text_loses_the_sentencepiece_space(small_tokenizer: ByName) -> None:
    tokenizer = small_tokenizer("llama_legacy")
    ids = tokenizer.encode("hello", add_special_tokens=False)
    assert tokenizer.tokens_to_bytes(ids) == b"hello"
    assert tokenizer.tokens_to_bytes(ids, at_start=False) == b" hello"
    assert tokenizer.token_text(ids[0]).startswith(" ")


@settings(max_examples=150, deadline=None)
@given(ids=st.lists(st.integers(0, 11), max_size=8), scheme=st.sampled_from(["always", "first", "never"]))
def test_metaspace_decoders_join_as_the_library_decodes(ids: list[int], scheme: str) -> None:
    words = [
        "\u2581",
        "\u2581\u2581",
        "a",
        "\u2581b",
        "c\u2581d",
        "\u2581\u2581e\u2581",
        "é",
        "<0x41>",
        "x y",
        "中",
        "<s>",
        "\u2581f",
    ]
    backend = Backend(models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=[]))
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    backend.add_special_tokens(["<s>"])
    tokenizer = Tokenizer(backend, TokenizerSpec(source="test"))
    for skip in (True, False):
        assert tokenizer.decode(ids, skip) == backend.decode(ids, skip_special_tokens=skip)


def test_one_tokenizer_serves_several_threads(small_tokenizer: ByName, documents: dict[str, str]) -> None:
    tokenizer = small_tokenizer("llama3_like")
    text = "<|eot_id|>" + documents["mixed"][:2000]
    jobs: list[Callable[[], list[int]]] = [
        lambda: tokenizer.encode(text),
        lambda: tokenizer.encode(text, parse_special=False),
        lambda: tokenizer.encode_marked(text.replace("<|", f"<{MARK}|"), MARK),
    ]
    expected = [job() for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda index: jobs[index % 3](), range(60)))
    assert results == [expected[index % 3] for index in range(60)]


def test_a_text_that_clearly_does_not_fit_is_refused_without_tokenising_it(smollm2_gguf: Path) -> None:
    tokenizer = load_tokenizer(smollm2_gguf)
    with pytest.raises(ContextLengthError, match="no 100 tokens have more") as caught:
        tokenizer.require_fits("a" * 20_000_000, 100, "prompt")
    assert caught.value.param == "prompt"
    with pytest.raises(ContextLengthError, match="the first 1600 alone are"):
        tokenizer.require_fits("one two three " * 200, 100, "prompt")


@pytest.mark.parametrize("text", ["word " * 90, " " * 5000, "\n" * 2000, "中" * 90, "<|im_end|>" * 100])
def test_a_text_that_fits_is_never_refused(smollm2_gguf: Path, text: str) -> None:
    tokenizer = load_tokenizer(smollm2_gguf)
    tokenizer.require_fits(text, len(tokenizer.encode(text)), "prompt")


def test_other_threads_run_while_a_long_text_is_tokenised(smollm2_gguf: Path) -> None:
    tokenizer = load_tokenizer(smollm2_gguf)
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(tokenizer.encode, "some words, 123 of them\n" * 40_000)
        ticks = 0
        while not work.done():
            time.sleep(0.001)
            ticks += 1
    assert len(work.result()) > 300_000
    assert ticks > 20  # with the interpreter locked: one or two
