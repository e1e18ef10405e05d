"""EngineArgs has exactly the fields of the config sections, with their defaults."""

from __future__ import annotations

import dataclasses

import pytest

from octavo.config.engine import EngineConfig
from octavo.engine.args import EngineArgs
from octavo.errors import ConfigError


def test_fields_and_defaults_equal_those_of_the_sections() -> None:
    sections = EngineConfig()
    expected = {
        field.name: getattr(getattr(sections, section.name), field.name)
        for section in dataclasses.fields(sections)
        for field in dataclasses.fields(getattr(sections, section.name))
    }
    assert {field.name: getattr(EngineArgs(), field.name) for field in dataclasses.fields(EngineArgs)} == expected


def test_values_reach_their_section() -> None:
    config = EngineArgs(model="m", block_size=32, max_num_seqs=3, num_threads=1).create_engine_config()
    assert (config.loading.model, config.cache.block_size) == ("m", 32)
    assert (config.scheduler.max_num_seqs, config.backend.num_threads) == (3, 1)


def test_an_unknown_option_names_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="did you mean max_model_len"):
        EngineArgs(max_modellen=3)


@pytest.mark.parametrize(
    ("option", "value"), [("block_size", 4), ("device", "gpu"), ("max_num_seqs", "3"), ("enforce_eager", 1)]
)
def test_values_out_of_bounds_are_refused_by_name(option: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineArgs(**{option: value}).create_engine_config()
    assert caught.value.param == option and option.replace("_", "-") in caught.value.message
