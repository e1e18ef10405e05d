"""--generation-config and --override-generation-config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.config.loading import LoadingConfig
from octavo.engine.frontend.sampling_defaults import sampling_in_force
from octavo.errors import ConfigError
from octavo.loader.sampling_advice import SamplingAdvice

ADVICE = SamplingAdvice({"temperature": 0.2, "top_p": 0.9}, "the file recommends")


def in_force(**loading: Any) -> SamplingAdvice:
    return sampling_in_force(LoadingConfig(**loading), ADVICE)


def test_auto_is_the_models_advice_and_vllm_is_none() -> None:
    assert in_force() == ADVICE
    assert in_force(generation_config="vllm") == SamplingAdvice()


@pytest.mark.parametrize("name", ["", "generation_config.json"])
def test_a_folder_or_its_file_gives_its_settings(tmp_path: Path, name: str) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"temperature": 0.7, "max_new_tokens": 9, "eos_token_id": 3}))
    found = in_force(generation_config=str(tmp_path / name))
    assert found.values == {"temperature": 0.7, "max_tokens": 9} and str(tmp_path) in found.source


def test_overriding_wins_and_leaves_the_rest() -> None:
    found = in_force(override_generation_config='{"temperature": 1.5, "top_k": 3}')
    assert found.values == {"temperature": 1.5, "top_p": 0.9, "top_k": 3}
    assert found.source == "the file recommends and --override-generation-config says"
    alone = in_force(generation_config="vllm", override_generation_config='{"max_new_tokens": 5}')
    assert alone == SamplingAdvice({"max_tokens": 5}, "--override-generation-config says")


@pytest.mark.parametrize(
    ("loading", "words"),
    [
        ({"generation_config": "/nowhere"}, "neither auto, nor vllm, nor a folder"),
        ({"override_generation_config": "[1]"}, "it must be a JSON object"),
        ({"override_generation_config": "{"}, "it must be a JSON object"),
        ({"override_generation_config": '{"temprature": 1}'}, "has the key 'temprature'; known: temperature"),
        ({"override_generation_config": '{"temperature": -1}'}, "config: temperature is -1; it must be 0 to 100"),
    ],
)
def test_what_cannot_be_is_one_clear_line(loading: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        in_force(**loading)
    assert words in caught.value.message and caught.value.param in loading
