"""Model folders: which file says what, and one clear error for each way a folder can be broken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import LoadError
from octavo.text.hf_tokenizer import tokenizer_from_folder
from octavo.text.load import load_tokenizer

_FOLDERS = Path(__file__).parents[2] / "golden" / "text" / "tokenizers"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(_FOLDERS / "llama_legacy", tmp_path / "model"))


def _write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data))


def _change(path: Path, **fields: object) -> None:
    _write(path, {**json.loads(path.read_text()), **fields})


def test_special_tokens_and_their_ids_are_read(folder: Path) -> None:
    tokenizer = tokenizer_from_folder(folder)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (1, (2,))
    assert tokenizer.spec.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    assert {0, 1, 2} <= tokenizer.special_token_ids


def test_special_tokens_map_wins_over_tokenizer_config(folder: Path) -> None:
    _write(folder / "special_tokens_map.json", {"eos_token": {"content": "<|end|>"}, "bos_token": None})
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.spec.special_tokens["eos_token"] == "<|end|>"
    assert tokenizer.spec.special_tokens["bos_token"] == "<s>"


@pytest.mark.parametrize(("value", "expected"), [(7, (7, 2)), ([7, 9, 7], (7, 9, 2))])
def test_generation_config_wins_for_end_ids(folder: Path, value: Any, expected: tuple[int, ...]) -> None:
    _write(folder / "config.json", {"eos_token_id": 5})
    assert tokenizer_from_folder(folder).eos_token_ids == (5, 2)
    _write(folder / "generation_config.json", {"eos_token_id": value})
    assert tokenizer_from_folder(folder).eos_token_ids == expected


def test_added_tokens_of_the_small_files_are_added_with_their_ids(folder: Path) -> None:
    size = tokenizer_from_folder(folder).vocab_size
    decoder = {str(size): {"content": "<|new|>", "special": True}}
    _change(folder / "tokenizer_config.json", added_tokens_decoder=decoder)
    _write(folder / "added_tokens.json", {"<plain>": size + 1})
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.encode("<|new|><plain>", add_special_tokens=False)[-2:] == [size, size + 1]
    assert size in tokenizer.special_token_ids
    assert size + 1 not in tokenizer.special_token_ids
    assert tokenizer.decode([size, size + 1]) == "<plain>"


def test_an_added_token_with_another_id_is_refused(folder: Path) -> None:
    _write(folder / "added_tokens.json", {"<plain>": 5000})
    with pytest.raises(LoadError, match="declared as id 5000"):
        tokenizer_from_folder(folder)


def test_templates_come_from_config_lists_and_files(folder: Path) -> None:
    named = [{"name": "default", "template": "A"}, {"name": "rag", "template": "R"}]
    _change(folder / "tokenizer_config.json", chat_template=named)
    assert tokenizer_from_folder(folder).spec.chat_templates == {"default": "A", "rag": "R"}
    (folder / "chat_template.jinja").write_text("B")
    (folder / "chat_templates").mkdir()
    (folder / "chat_templates" / "tool_use.jinja").write_text("T")
    assert tokenizer_from_folder(folder).spec.chat_templates == {"default": "B", "rag": "R", "tool_use": "T"}


def test_truncation_and_padding_from_training_are_off(folder: Path) -> None:
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    _change(folder / "tokenizer.json", truncation=truncation)
    assert len(tokenizer_from_folder(folder).encode("one two three four five six")) > 6


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", None, r"tokenizer\.json: file not found"),
        ("tokenizer.json", "{", r"tokenizer\.json: not a valid"),
        ("tokenizer.json", "[]", r"tokenizer\.json: not a valid"),
        ("tokenizer.json", '"Unigram"', r"tokenizer\.json: not a valid"),
        ("tokenizer_config.json", "{", r"tokenizer_config\.json: not valid JSON"),
        ("tokenizer_config.json", "[]", r"tokenizer_config\.json: expected a JSON object"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {}}}', r"added_tokens_decoder, entry 'x'"),
        ("added_tokens.json", '{"a": "b"}', r"added_tokens\.json: the id of 'a'"),
        ("added_tokens.json", '{"a": ' + "9" * 5000 + "}", r"added_tokens\.json: not valid JSON"),
        ("added_tokens.json", '{"a": ' + "9" * 4000 + "}", r"the added token 'a' is declared as id 9999"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"' + "9" * 5000 + '": {"content": "a"}}}', r"entry '9999"),
    ],
)
def test_a_broken_folder_is_a_load_error_naming_the_file(folder: Path, file: str, content: str | None, message: str) -> None:
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(LoadError, match=message):
        tokenizer_from_folder(folder)


def test_a_decoder_that_cannot_work_token_by_token_is_refused(folder: Path) -> None:
    _change(folder / "tokenizer.json", decoder={"type": "CTC", "pad_token": "a", "word_delimiter_token": "b", "cleanup": True})
    with pytest.raises(LoadError, match="decoder step .*CTC"):
        tokenizer_from_folder(folder)


def test_a_missing_path_is_a_load_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no such file or folder"):
        load_tokenizer(tmp_path / "nothing")
