"""RopeConfig from old and new Hugging Face forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.config.model import RopeConfig
from octavo.errors import LoadError
from octavo.loader.fields import Fields
from octavo.loader.rope_config import rope_from_fields, ropes_by_layer_kind

Values = dict[str, object]
FACTORS = [1.0, 2.0, 3.0, 4.0]


def rope(values: Values) -> RopeConfig:
    return rope_from_fields(Fields(values, "config.json"), head_dim=8, max_position=1024)


GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "sources" / "golden.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["ropes"], ids=lambda case: json.dumps(case["config"]))
def test_rope_scaling_beside_rope_parameters_means_what_transformers_makes_of_it(case: dict[str, Values]) -> None:
    found = rope_from_fields(Fields(case["config"], "config.json"), head_dim=16, max_position=256)
    wanted = case["rope_parameters"]
    assert (found.kind, found.theta) == (wanted["rope_type"], wanted["rope_theta"])
    assert found.factor == (1.0 if found.kind == "default" else wanted["factor"])
    if found.kind == "yarn":
        assert found.original_max_position == wanted["original_max_position_embeddings"]


@pytest.mark.parametrize(
    ("values", "warned"),
    [
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}}, "is used"),
        ({"rope_scaling": {"rope_type": "default"}, "rope_parameters": {"rope_theta": 5.0}}, "10000 is used and not the 5.0"),
        ({"rope_scaling": {"rope_type": "default"}, "rope_parameters": {"rope_type": "default"}}, ""),
        ({"rope_scaling": {}, "rope_parameters": {"rope_theta": 5.0}}, ""),
    ],
)
def test_a_replaced_section_and_its_lost_base_are_warned_of(
    values: Values, warned: str, logged: pytest.LogCaptureFixture
) -> None:
    rope(values)
    assert warned in logged.text and bool(logged.records) == bool(warned)


def test_gemma3_puts_rope_scaling_over_its_full_layers() -> None:
    layers = {"full_attention": {"rope_theta": 7e5}, "sliding_attention": {"rope_theta": 9e3}}
    values: Values = {"rope_parameters": layers, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    full, sliding = ropes_by_layer_kind(Fields(values, "config.json"), 8, 1024, 1_000_000.0, 10_000.0)
    assert (full.kind, full.factor, full.theta) == ("linear", 8.0, 7e5)
    assert (sliding.kind, sliding.theta) == ("default", 9e3)


def test_without_any_key_the_base_is_ten_thousand() -> None:
    assert rope({}) == RopeConfig(theta=10000.0, rotary_dim=8)


@pytest.mark.parametrize(
    "section",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256, "beta_fast": 16, "truncate": False},
        {
            "rope_type": "longrope",
            "short_factor": FACTORS,
            "long_factor": FACTORS,
            "original_max_position_embeddings": 256,
            "attention_factor": 1.5,
        },
    ],
)
def test_old_and_new_form_mean_the_same(section: Values) -> None:
    old = rope({"rope_theta": 5e5, "rope_scaling": section})
    new = rope({"rope_parameters": section | {"rope_theta": 5e5}})
    older = rope(
        {"rope_theta": 5e5, "rope_scaling": {("type" if key == "rope_type" else key): section[key] for key in section}}
    )
    assert old == new == older
    assert old.kind == section["rope_type"] and old.theta == 5e5


def test_values_reach_their_fields() -> None:
    config = rope({"rope_scaling": {"rope_type": "yarn", "factor": 4, "mscale": 1.0, "mscale_all_dim": 0.5, "beta_slow": 2}})
    assert (config.factor, config.mscale, config.mscale_all_dim, config.beta_slow) == (4.0, 1.0, 0.5, 2.0)
    assert config.original_max_position == 1024, "absent, it is the model's own length"


def test_longrope_works_out_its_factor() -> None:
    section: Values = {"rope_type": "longrope", "short_factor": FACTORS, "long_factor": FACTORS}
    config = rope({"rope_scaling": section, "original_max_position_embeddings": 128})
    assert config.factor == 8.0 and config.original_max_position == 128 and config.long_factors == tuple(FACTORS)


def test_partial_rotation_counts_dimensions() -> None:
    assert rope({"partial_rotary_factor": 0.5}).rotary_dim == 4
    assert rope({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}}).rotary_dim == 2


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"rope_type": "spiral"}, "rope_type"),
        ({"rope_type": 3}, "rope_type"),
        ({"rope_type": "linear"}, "factor"),
        ({"rope_type": "linear", "factor": 0}, "factor"),
        ({"rope_type": "linear", "factor": "4"}, "factor"),
        ({"rope_type": "linear", "factor": float("inf")}, "factor"),
        ({"rope_type": "longrope", "short_factor": FACTORS, "long_factor": FACTORS[:3]}, "long_factor"),
        ({"rope_type": "longrope", "short_factor": [1, 1, 1, 0], "long_factor": FACTORS}, "short_factor"),
        ({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}, "high_freq_factor"),
        ({"rope_type": "default", "partial_rotary_factor": 0.1}, "partial_rotary_factor"),
        ({"rope_type": "yarn", "factor": 2, "truncate": 1}, "truncate"),
    ],
)
def test_bad_values_are_refused_naming_file_and_key(section: Values, key: str) -> None:
    with pytest.raises(LoadError, match=rf"config\.json: rope_scaling: {key} "):
        rope({"rope_scaling": section})
