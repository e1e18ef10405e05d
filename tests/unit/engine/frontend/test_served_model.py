"""What the text side of an engine loads: model, tokenizer, sampling settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import write_model

from octavo.config.engine import EngineConfig
from octavo.config.loading import LoadingConfig
from octavo.engine.frontend.served_model import load_served_model, locate_model
from octavo.errors import ConfigError, LoadError


def located(**loading: Any) -> EngineConfig:
    return locate_model(EngineConfig(loading=LoadingConfig(load_format="dummy", **loading)))


def test_the_tokenizer_may_be_that_of_another_folder(tmp_path: Path) -> None:
    model, other = write_model(tmp_path / "model"), write_model(tmp_path / "other")
    own = load_served_model(located(model=str(model)))
    assert str(model) in own.tokenizer.spec.source
    for given in (other, model):
        served = load_served_model(located(model=str(model), tokenizer=str(given)))
        assert str(given) in served.tokenizer.spec.source and served.name == str(model)


def test_a_tokenizer_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="nowhere"):
        located(model=str(write_model(tmp_path / "model")), tokenizer=str(tmp_path / "nowhere"))


def test_sampling_settings_come_from_the_folder_unless_flags_say_otherwise(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    (model / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "eos_token_id": 1}))
    served = load_served_model(located(model=str(model)))
    assert served.sampling.values == {"temperature": 0.6} and served.sampling.source == "generation_config.json recommends"
    assert load_served_model(located(model=str(model), generation_config="vllm")).sampling.values == {}
    changed = located(model=str(model), override_generation_config='{"top_k": 5}')
    assert load_served_model(changed).sampling.values == {"temperature": 0.6, "top_k": 5}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, None),
        (",", None),
        (" ", None),
        ("one", ["one"]),
        ("one, two,three/four", ["one", "two", "three/four"]),
        ('["one, two", "three"]', ["one, two", "three"]),
    ],
)
def test_a_comma_in_the_path_is_part_of_the_name(tmp_path: Path, given: str | None, names: list[str] | None) -> None:
    model = write_model(tmp_path / "a,b, c")
    config = located(model=str(model), served_model_name=given)
    expected = names or [str(model)]
    assert config.loading.served_names == locate_model(config).loading.served_names == expected
    assert load_served_model(config).name == expected[0]


def test_names_that_are_no_list_are_refused(tmp_path: Path) -> None:
    for given in ("[one", "[1]", '{"a": 1}]', '["a", null]'):
        loading = LoadingConfig(served_model_name=given)
        if not given.startswith("["):
            assert loading.served_names == [given]
            continue
        with pytest.raises(ConfigError, match="--served-model-name is .* separated by commas, or a JSON list"):
            _ = loading.served_names
