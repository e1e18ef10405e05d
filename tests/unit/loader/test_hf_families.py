"""config.json of the families: what absent keys mean, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.model import ModelConfig
from octavo.errors import LoadError
from octavo.loader.fields import Fields
from octavo.loader.hf_config import model_config

FULL, SLIDING = "full", "sliding"


@pytest.fixture
def read(base_config: dict[str, object]) -> Any:
    """read(architecture, **changes): the configuration of a model of 8 layers; a key given as ... is left out."""

    def read(architecture: str, **changes: Any) -> ModelConfig:
        values = {**base_config, "num_hidden_layers": 8, "architectures": [architecture], **changes}
        kept = {key: value for key, value in values.items() if value is not ...}
        return model_config(Fields(kept, "config.json"), Fields({}, "generation_config.json"))

    return read


def test_phi3_slides_only_with_a_window(read: Any) -> None:
    config = read("Phi3ForCausalLM", rms_norm_eps=...)
    assert config.layer_kinds == (FULL,) * 8 and config.sliding_window is None and config.norm_eps == 1e-5
    config = read("Phi3ForCausalLM", sliding_window=2047)
    assert config.layer_kinds == (SLIDING,) * 8 and config.sliding_window == 2047


@pytest.mark.parametrize("kind", ["longrope", "su", "yarn"])
def test_every_name_of_phi3s_rope_is_longrope(read: Any, kind: str) -> None:
    scaling = {"type": kind, "short_factor": [1.0] * 6, "long_factor": [2.0] * 6}
    changes = {"rope_scaling": scaling, "partial_rotary_factor": 0.75, "max_position_embeddings": 131072}
    rope = read("Phi3ForCausalLM", **changes).rope
    assert (rope.kind, rope.rotary_dim, rope.factor) == ("longrope", 12, 32.0)
    assert rope.original_max_position == 4096, "transformers' default"
    assert read("Phi3ForCausalLM", **changes, original_max_position_embeddings=8192).rope.factor == 16.0


def test_smollm3_rotates_three_of_four_layers(read: Any) -> None:
    config = read("SmolLM3ForCausalLM")
    assert config.rotated == (True, True, True, False) * 2 and config.layer_kinds == (FULL,) * 8
    assert read("SmolLM3ForCausalLM", no_rope_layer_interval=2).rotated == (True, False) * 4
    config = read("SmolLM3ForCausalLM", no_rope_layers=[0] + [1] * 7, use_sliding_window=True, sliding_window=16)
    assert config.rotated == (False,) + (True,) * 7 and config.layer_kinds == (SLIDING,) + (FULL,) * 7


@pytest.mark.parametrize("flags", [[1, 0], [2] * 8, "1111", 3])
def test_odd_lists_of_rotated_layers_are_refused(read: Any, flags: object) -> None:
    with pytest.raises(LoadError, match=r"config\.json: no_rope_layers is .*, expected 8 times 0 or 1"):
        read("SmolLM3ForCausalLM", no_rope_layers=flags)


def test_olmo3_slides_in_three_of_four_layers_and_scales_the_rope_of_the_others(read: Any) -> None:
    scaling = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}
    config = read("Olmo3ForCausalLM", rope_scaling=scaling)
    assert config.layer_kinds == (SLIDING, SLIDING, SLIDING, FULL) * 2 and config.sliding_window == 4096
    assert config.rope.kind == "yarn" and config.rope.theta == 500_000
    assert config.local_rope is not None and config.local_rope.kind == "default" and config.local_rope.theta == 500_000
    assert read("Olmo2ForCausalLM").layer_kinds == (FULL,) * 8


@pytest.mark.parametrize("architecture", ["GraniteForCausalLM", "GraniteMoeHybridForCausalLM"])
def test_granites_multipliers_are_1_where_absent(read: Any, architecture: str) -> None:
    dense = {"num_local_experts": 0, "layer_types": ["attention"] * 8 if "Hybrid" in architecture else ...}
    config = read(architecture, **dense)
    assert (config.embedding_scale, config.query_scale, config.residual_multiplier, config.logits_scaling) == (1, 1, 1, 1)
    config = read(architecture, **dense, attention_multiplier=0.5, residual_multiplier=0.22)
    assert (config.query_scale, config.residual_multiplier) == (0.5, 0.22)


@pytest.mark.parametrize("key", ["embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"])
@pytest.mark.parametrize("value", [0, -1.0, 1e-200, float("nan"), float("inf"), "x"])
def test_multipliers_that_no_float_can_bear_are_refused(read: Any, key: str, value: object) -> None:
    with pytest.raises(LoadError, match=rf"config\.json: {key} is "):
        read("GraniteForCausalLM", **{key: value})


def test_granite4_is_read_without_experts_and_state_space_layers_only(read: Any) -> None:
    kinds, name = ["attention"] * 8, "GraniteMoeHybridForCausalLM"
    config = read(name, num_local_experts=0, layer_types=kinds, shared_intermediate_size=80)
    assert config.intermediate_size == 80 and config.rotated == (False,) * 8
    assert read(name, num_local_experts=0, layer_types=kinds, position_embedding_type="rope").rotated == (True,) * 8
    with pytest.raises(LoadError, match="num_local_experts is not 0; mixtures of experts are not supported"):
        read(name, layer_types=kinds)
    with pytest.raises(LoadError, match="layer_types is .*; only models of which all layers are attention"):
        read(name, num_local_experts=0, layer_types=["mamba", *kinds[1:]])


def test_gemma2_has_caps_unless_the_file_turns_them_off(read: Any) -> None:
    config = read("Gemma2ForCausalLM", tie_word_embeddings=...)
    assert (config.attn_softcap, config.final_softcap, config.query_scale) == (50.0, 30.0, 0.0625)
    assert config.layer_kinds == (SLIDING, FULL) * 4 and config.tie_embeddings and config.hidden_act == "gelu_pytorch_tanh"
    config = read("Gemma2ForCausalLM", attn_logit_softcapping=None, final_logit_softcapping=None)
    assert config.attn_softcap is None and config.final_softcap is None


@pytest.mark.parametrize("architecture", ["GlmForCausalLM", "Glm4ForCausalLM"])
def test_glm_rotates_half_of_a_head_unless_told_otherwise(read: Any, architecture: str) -> None:
    config = read(architecture, rms_norm_eps=...)
    assert config.rope.rotary_dim == 8 and config.attention_bias and not config.attention_out_bias
    assert config.norm_eps == 1.5625e-7
    assert read(architecture, partial_rotary_factor=1.0).rope.rotary_dim == 16


def test_ministral3_has_a_rope_of_its_own_where_the_file_names_none(read: Any) -> None:
    config = read("Ministral3ForCausalLM")
    assert config.rope.kind == "yarn" and config.rope.original_max_position == 16384 and config.rope.temperature == 0
    assert config.query_rope is not None and config.query_rope.temperature == 0.1
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    assert read("Ministral3ForCausalLM", rope_parameters=rope).query_rope is None
    with pytest.raises(LoadError, match="llama_4_scaling_beta needs a rope of whole heads"):
        read("Ministral3ForCausalLM", rope_parameters={**rope, "llama_4_scaling_beta": 0.1})


def test_the_text_part_of_mistral_small_and_ministral3(read: Any, base_config: dict[str, object]) -> None:
    name, inner = (
        "Mistral3ForConditionalGeneration",
        {key: base_config[key] for key in base_config if key != "tie_word_embeddings"},
    )
    config = read(name, text_config={**inner, "model_type": "mistral"}, tie_word_embeddings=...)
    assert config.architecture == "MistralForCausalLM" and config.sliding_window is None and not config.tie_embeddings
    config = read(name, text_config={**inner, "model_type": "ministral3"}, tie_word_embeddings=True)
    assert config.architecture == "Ministral3ForCausalLM" and config.tie_embeddings
    with pytest.raises(LoadError, match="model_type is 'mistral4'; known: mistral, ministral3"):
        read(name, text_config={**inner, "model_type": "mistral4"})


def test_exaone4_rotates_the_layers_that_slide(read: Any) -> None:
    for pattern in (..., 4, "LLLG"):
        config = read("Exaone4ForCausalLM", sliding_window_pattern=pattern)
        assert config.layer_kinds == (SLIDING, SLIDING, SLIDING, FULL) * 2
        assert config.rotated == (True, True, True, False) * 2
    config = read("Exaone4ForCausalLM", sliding_window=None)
    assert config.layer_kinds == (FULL,) * 8 and config.rotated == ()


def test_seed_oss_has_biases_on_q_k_and_v(read: Any) -> None:
    config = read("SeedOssForCausalLM")
    assert (config.attention_bias, config.attention_out_bias, config.mlp_bias) == (True, False, False)


@pytest.mark.parametrize("architecture", ["SmolLM3ForCausalLM", "Olmo3ForCausalLM", "Exaone4ForCausalLM"])
def test_a_huge_number_of_layers_is_refused(read: Any, architecture: str) -> None:
    with pytest.raises(LoadError, match="num_hidden_layers is 2147483648, expected 1 to 1024"):
        read(architecture, num_hidden_layers=1 << 31)
