"""Where two files disagree, or one says nothing: as transformers does (tests/golden/sources), and with a warning."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from octavo.text.hf_tokenizer import tokenizer_from_folder
from octavo.text.tokenizer import Tokenizer

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[2] / "golden" / "sources" / "golden.json").read_text())
BOS, EOS = 0, 1


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What octavo logs, also after another test has set up its own logging."""
    monkeypatch.setattr(logging.getLogger("octavo"), "propagate", True)
    return caplog


def write(folder: Path, tokenizer: str, settings: dict[str, Any], **files: object) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(GOLDEN["tokenizers"][tokenizer]))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def title(case: dict[str, Any]) -> str:
    config = case["tokenizer_config"]
    flags = [f"{key.split('_')[1]}={config[key]}" for key in config if key.startswith("add_")]
    return "-".join([case["tokenizer"], config["tokenizer_class"], *flags])


@pytest.mark.parametrize("case", GOLDEN["flags"], ids=title)
def test_the_post_processor_says_what_is_added_whatever_the_flags_say(tmp_path: Path, case: dict[str, Any]) -> None:
    config, wanted = case["tokenizer_config"], case["ids"]
    ids = tokenizer_from_folder(write(tmp_path, case["tokenizer"], config)).encode("hello world")
    assert (ids[0] == BOS, ids[-1] == EOS) == (wanted[:1] == [BOS], wanted[-1:] == [EOS])
    if config["tokenizer_class"] == "PreTrainedTokenizerFast":  # the other classes build a pipeline of their own
        assert ids == wanted


@pytest.mark.parametrize(
    ("tokenizer", "flags", "warned"),
    [
        ("adds_bos", {"add_bos_token": False}, ["add_bos_token is false"]),
        ("adds_bos", {"add_eos_token": True}, ["add_eos_token is true"]),
        ("plain", {"add_bos_token": True, "add_eos_token": True}, ["add_bos_token is true", "add_eos_token is true"]),
        ("adds_both", {"add_bos_token": True, "add_eos_token": True}, []),
        ("plain", {"add_bos_token": False}, []),
        ("adds_bos", {"add_bos_token": None}, []),
    ],
)
def test_a_flag_that_is_not_followed_is_warned_of(
    tmp_path: Path, logged: pytest.LogCaptureFixture, tokenizer: str, flags: dict[str, Any], warned: list[str]
) -> None:
    tokenizer_from_folder(write(tmp_path, tokenizer, {"bos_token": "<s>", "eos_token": "</s>", **flags}))
    assert [text for text in warned if text in logged.text] == warned and len(logged.records) == len(warned)


@pytest.fixture
def words(tmp_path: Path) -> Tokenizer:
    """A tokenizer without a decoder."""
    return tokenizer_from_folder(write(tmp_path, "plain", {"bos_token": "<s>", "eos_token": "</s>"}))


@pytest.mark.parametrize("case", GOLDEN["decoding"], ids=lambda case: str(case["ids"]))
def test_without_a_decoder_tokens_are_joined_by_spaces(words: Tokenizer, case: dict[str, Any]) -> None:
    for skips in (True, False):
        assert words.decode(case["ids"], skip_special_tokens=skips) == case["text"][str(skips).lower()]


def test_without_a_decoder_a_text_in_pieces_is_the_whole(words: Tokenizer) -> None:
    ids = [0, 3, 4, 5, 6, 7, 8, 1]
    pieces = [words.tokens_to_bytes(ids[:3])] + [words.tokens_to_bytes([i], at_start=False) for i in ids[3:]]
    assert b"".join(pieces).decode() == words.decode(ids)


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"eos_token_id": [0]}, {}, (0, 1)),
        ({"eos_token_id": 5}, {"eos_token_id": 6}, (5, 1)),
        ({"eos_token_id": [1, 4]}, {}, (1, 4)),
        ({}, {"eos_token_id": 6}, (6, 1)),
        ({}, {}, (1,)),
        ({"eos_token_id": -1}, {"eos_token_id": 6}, (6, 1)),
        ({"eos_token_id": [4, 999]}, {}, (4, 1)),
        ({"eos_token_id": None}, {"eos_token_id": [3, None]}, (3, 1)),
        ({"eos_token_id": "x"}, {"eos_token_id": True}, (1,)),
        ({"eos_token_id": int("9" * 4000)}, {}, (1,)),
        ('{"eos_token_id": ' + "9" * 5000 + "}", {}, (1,)),
        ("{", {}, (1,)),
        ({"eos_token_id": []}, {"eos_token_id": 6}, (6, 1)),
    ],
)
def test_the_tokenizers_own_end_token_ends_a_text_too(
    tmp_path: Path, generation: object, config: object, expected: tuple[int, ...]
) -> None:
    folder = write(tmp_path, "plain", {"eos_token": "</s>"}, generation_config=generation, config=config)
    assert tokenizer_from_folder(folder).eos_token_ids == expected


def test_an_end_token_that_only_the_tokenizer_knows_is_warned_of(tmp_path: Path, logged: pytest.LogCaptureFixture) -> None:
    tokenizer_from_folder(write(tmp_path, "plain", {"eos_token": "</s>"}, generation_config={"eos_token_id": [0]}))
    assert "eos_token_id is [0] without 1" in logged.text


@pytest.mark.parametrize(
    ("config", "files", "warned"),
    [
        ({"bos_token": "<nope>"}, {}, "bos_token is '<nope>', which is not in the vocabulary"),
        ({"eos_token": {"content": "<nope>"}}, {}, "eos_token is '<nope>'"),
        ({"chat_template": 5}, {}, "chat_template is neither"),
        ({"chat_template": [{"name": "x"}]}, {}, "chat_template, entry 0"),
    ],
)
def test_what_nobody_needs_is_ignored_with_a_warning(
    tmp_path: Path, logged: pytest.LogCaptureFixture, config: dict[str, Any], files: dict[str, Any], warned: str
) -> None:
    tokenizer = tokenizer_from_folder(write(tmp_path, "plain", config, **files))
    assert tokenizer.encode("hello") == [3] and tokenizer.spec.chat_templates == {} and tokenizer.bos_token_id is None
    assert warned in logged.text
