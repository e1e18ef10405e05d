"""The files of sentence-transformers in a folder: kinds of pooling, damaged files, lengths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.config.model import PoolingConfig
from octavo.errors import LoadError
from octavo.loader.sentence_files import read_max_length, read_pooling

DEFAULT = PoolingConfig(kind="last", normalize=True)
STEPS = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]


def write(folder: Path, pooling: dict[str, Any] | None, steps: list[tuple[str, str]] = STEPS) -> Path:
    modules = [{"idx": index, "path": path, "type": f"a.b.{kind}"} for index, (kind, path) in enumerate(steps)]
    (folder / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.mark.parametrize(
    ("pooling", "kind"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False, "pooling_mode_max_tokens": False}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_each_kind_is_read(tmp_path: Path, pooling: dict[str, Any], kind: str) -> None:
    assert read_pooling(write(tmp_path, pooling), DEFAULT) == PoolingConfig(kind=kind, normalize=True)  # type: ignore[arg-type]


def test_only_a_step_normalize_normalises(tmp_path: Path) -> None:
    assert not read_pooling(write(tmp_path, {"pooling_mode": "cls"}, STEPS[:2]), DEFAULT).normalize


def test_without_the_files_nothing_changes(tmp_path: Path) -> None:
    assert read_pooling(tmp_path, DEFAULT) == DEFAULT
    assert read_pooling(write(tmp_path, None, STEPS[:1]), DEFAULT) == DEFAULT


@pytest.mark.parametrize(
    ("pooling", "message"),
    [
        (None, "config.json is missing"),
        ({}, r"the pooling is \[\]"),
        ({"pooling_mode_max_tokens": True}, "pooling_mode_max_tokens"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "one of them at a time"),
        ({"pooling_mode": "weightedmean"}, "weightedmean"),
        ({"pooling_mode": 3}, "pooling_mode"),
    ],
)
def test_other_kinds_are_refused(tmp_path: Path, pooling: dict[str, Any] | None, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        read_pooling(write(tmp_path, pooling), DEFAULT)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '[{"type": 1}]', '[{"type": "a.Pooling", "path": "/x"}]', '[{"type": "a.Pooling", "path": "../x"}]', "["],
)
def test_damaged_modules_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(LoadError, match=r"modules\.json"):
        read_pooling(tmp_path, DEFAULT)


@pytest.mark.parametrize(("text", "length"), [('{"max_seq_length": 256}', 256), ('{"max_seq_length": 9999}', 512), ("{}", 512)])
def test_the_length_is_the_smaller_one(tmp_path: Path, text: str, length: int) -> None:
    assert read_max_length(tmp_path, 512) == 512
    (tmp_path / "sentence_bert_config.json").write_text(text)
    assert read_max_length(tmp_path, 512) == length


@pytest.mark.parametrize("text", ['{"max_seq_length": 0}', '{"max_seq_length": "x"}', "3"])
def test_a_damaged_length_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "sentence_bert_config.json").write_text(text)
    with pytest.raises(LoadError, match="sentence_bert_config"):
        read_max_length(tmp_path, 512)
