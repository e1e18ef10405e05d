"""Tokenizers from GGUF metadata: same ids as the tokenizer.json with the same vocabulary, and clear errors for damaged keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import LoadError
from octavo.text.fill_in_middle import fim_token_ids
from octavo.text.gguf_merges import TokenType
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.hf_tokenizer import tokenizer_from_folder
from octavo.text.pre_tokenizers import PRE_TOKENIZER_RULES, build_pre_tokenizer

_FOLDERS = Path(__file__).parents[2] / "golden" / "text" / "tokenizers"
PATH = Path("model.gguf")


def _metadata(name: str, model: str, **extra: object) -> dict[str, Any]:
    """The metadata a GGUF file of a golden folder would have."""
    data = json.loads((_FOLDERS / name / "tokenizer.json").read_text())
    added = {token["content"]: token for token in data["added_tokens"]}
    vocab = data["model"]["vocab"]
    pieces = dict(vocab) if isinstance(vocab, list) else vocab
    texts = [*pieces] if isinstance(vocab, list) else sorted(pieces, key=lambda text: int(pieces[text]))
    texts += [text for text in sorted(added, key=lambda text: int(added[text]["id"])) if text not in pieces]
    types = [int(_kind(text, added)) for text in texts]
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": types,
        **{f"tokenizer.ggml.{key}": value for key, value in extra.items()},
    }
    if isinstance(vocab, list):
        metadata["tokenizer.ggml.scores"] = [float(pieces.get(text, 0.0)) for text in texts]
    else:
        metadata["tokenizer.ggml.merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    return metadata


def _kind(text: str, added: dict[str, Any]) -> TokenType:
    if text == "<unk>":
        return TokenType.UNKNOWN
    if text in added:
        return TokenType.CONTROL if added[text]["special"] else TokenType.USER_DEFINED
    return TokenType.BYTE if text.startswith("<0x") and len(text) == 6 else TokenType.NORMAL


def test_tokens_to_fill_in_the_middle_are_known_by_their_keys() -> None:
    keys = {"fim_pre_token_id": 5, "fim_suf_token_id": 6, "fim_mid_token_id": 7}
    old = {"prefix_token_id": 7, "suffix_token_id": 8, "middle_token_id": 9}
    for extra, expected in (({**old, **keys}, (5, 6, 7)), (old, (7, 8, 9)), ({"fim_pre_token_id": 5}, None), ({}, None)):
        tokenizer = tokenizer_from_gguf(_metadata("gpt2_like", "gpt2", pre="gpt-2", **extra), PATH)
        assert fim_token_ids(tokenizer) == tokenizer.spec.fim_token_ids == expected


@pytest.mark.parametrize(
    ("folder", "model", "extra"),
    [
        ("gpt2_like", "gpt2", {"pre": "gpt-2"}),
        ("qwen2_like", "gpt2", {"pre": "qwen2"}),
        ("llama3_like", "gpt2", {"pre": "llama-bpe", "bos_token_id": 700}),
        ("llama_legacy", "llama", {"bos_token_id": 1, "unknown_token_id": 0, "add_space_prefix": True}),
        ("gemma_like", "llama", {"bos_token_id": 1, "unknown_token_id": 0, "add_space_prefix": False}),
    ],
)
def test_ids_equal_those_of_the_same_vocabulary_in_a_folder(
    folder: str, model: str, extra: dict[str, object], documents: dict[str, str]
) -> None:
    expected = tokenizer_from_folder(_FOLDERS / folder)
    tokenizer = tokenizer_from_gguf(_metadata(folder, model, **extra), PATH)
    assert tokenizer.special_token_ids == expected.special_token_ids
    assert tokenizer.vocab_size == expected.vocab_size
    for text in documents.values():
        ids = tokenizer.encode(text)
        assert ids == expected.encode(text)
        assert tokenizer.decode(ids) == expected.decode(ids)


def test_unigram_models_cut_like_the_folder(documents: dict[str, str]) -> None:
    expected = tokenizer_from_folder(_FOLDERS / "unigram")
    tokenizer = tokenizer_from_gguf(_metadata("unigram", "t5", eos_token_id=1, unknown_token_id=2), PATH)
    for title in ("english", "numbers"):
        text = documents[title].strip()
        assert tokenizer.encode(text) == expected.encode(text)
    assert tokenizer.encode("a </s> b", parse_special=False).count(1) == 1
    assert tokenizer.decode(tokenizer.encode("hello  中 world")) == "hello 中 world"


def test_no_text_merges_into_a_control_token() -> None:
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "<", "s", ">", "/", "</", "s>", "\u2581"],
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1, 1, 1],
        "tokenizer.ggml.scores": [0.0] * 10,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    tokenizer = tokenizer_from_gguf(metadata, PATH)
    assert tokenizer.encode("</s>", parse_special=False) == [1, 9, 7, 8]
    assert tokenizer.encode("</s>") == [1, 2]


@pytest.mark.parametrize(("name", "adds"), [("add_bos_token", True), ("add_eos_token", True), ("add_bos_token", False)])
def test_flags_say_what_is_put_around_a_text(name: str, adds: bool) -> None:
    extra = {"pre": "smollm", "bos_token_id": 698, "eos_token_id": 699, name: adds}
    ids = tokenizer_from_gguf(_metadata("gpt2_like", "gpt2", **extra), PATH).encode("x")
    assert (ids[0] == 698) == (name == "add_bos_token" and adds)
    assert (ids[-1] == 699) == (name == "add_eos_token" and adds)


def test_chat_templates_and_end_tokens_are_read() -> None:
    metadata = _metadata("qwen2_like", "gpt2", pre="qwen2", eos_token_id=700)
    metadata |= {"tokenizer.chat_template": "A", "tokenizer.chat_template.tool_use": "B"}
    tokenizer = tokenizer_from_gguf(metadata, PATH)
    assert tokenizer.spec.chat_templates == {"default": "A", "tool_use": "B"}
    assert tokenizer.eos_token_ids == (700, 702)
    assert tokenizer.spec.special_tokens["eos_token"] == "<|endoftext|>"


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZER_RULES))
def test_every_pre_tokenizer_keeps_every_byte(name: str) -> None:
    text = "Hello  wörld's 12345 ٣٤ 你好、한국 🤷🏽\u200d♀️\n\n\tfoo(bar) = 'x'; \u0301 (a|b).,!? "
    pieces = build_pre_tokenizer(PRE_TOKENIZER_RULES[name]).pre_tokenize_str(text)
    joined = "".join(piece for piece, _ in pieces)
    whole = build_pre_tokenizer(PRE_TOKENIZER_RULES["gpt-2"]).pre_tokenize_str(text)
    assert joined == "".join(piece for piece, _ in whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "wordpiece"}, r"tokenizer\.ggml\.model is 'wordpiece'; known: bert, gemma4, gpt2, llama, t5"),
        ({"tokenizer.ggml.model": None}, r"tokenizer\.ggml\.model is None"),
        ({"tokenizer.ggml.pre": "martian"}, r"'martian'.*known: .*llama-bpe.*smollm"),
        ({"tokenizer.ggml.tokens": None}, r"tokenizer\.ggml\.tokens is missing"),
        ({"tokenizer.ggml.tokens": ["a", 5]}, r"tokenizer\.ggml\.tokens, entry 1 is 5"),
        ({"tokenizer.ggml.token_type": [1]}, r"token_type has 1 entries"),
        ({"tokenizer.ggml.merges": ["ab"]}, r"merges, entry 0 is 'ab'"),
        ({"tokenizer.ggml.merges": ["zzzz yyyy"]}, r"merges does not fit"),
        ({"tokenizer.ggml.tokens": ["a" * 200_000]}, r"token 0 has 200000 characters, more than the limit of 4096"),
        ({"tokenizer.ggml.tokens": ["a" * 4000] * 1100}, r"the tokens have 4400000 characters, more than the limit"),
        ({"tokenizer.ggml.add_bos_token": "yes"}, r"add_bos_token is 'yes'"),
    ],
)
def test_damaged_metadata_is_a_load_error_naming_the_key(change: dict[str, Any], message: str) -> None:
    metadata = {**_metadata("gpt2_like", "gpt2", pre="gpt-2"), **change}
    with pytest.raises(LoadError, match=message) as caught:
        tokenizer_from_gguf(metadata, PATH)
    assert caught.value.message.startswith("model.gguf: ")


def test_scores_of_the_wrong_length_and_damaged_charsmaps_are_load_errors() -> None:
    with pytest.raises(LoadError, match="scores has 3 entries"):
        metadata = _metadata("unigram", "t5", unknown_token_id=2, scores=[0.0, 0.0, 0.0])
        metadata["tokenizer.ggml.scores"] = [0.0, 0.0, 0.0]
        tokenizer_from_gguf(metadata, PATH)
    with pytest.raises(LoadError, match="charsmap"):
        tokenizer_from_gguf(_metadata("unigram", "t5", unknown_token_id=2, precompiled_charsmap=[1, 2, 3]), PATH)
