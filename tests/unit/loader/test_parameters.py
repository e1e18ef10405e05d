"""The parameters each architecture needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.config.model import ModelConfig
from octavo.loader.fields import Fields
from octavo.loader.hf_config import model_config
from octavo.loader.parameters import parameter_shapes


def config_of(values: dict[str, object], architecture: str) -> ModelConfig:
    return model_config(Fields(values | {"architectures": [architecture]}, "config.json"), Fields({}, "generation"))


@pytest.mark.parametrize(
    ("architecture", "per_layer"),
    [
        ("LlamaForCausalLM", 9),
        ("MistralForCausalLM", 9),
        ("Qwen2ForCausalLM", 12),
        ("Qwen3ForCausalLM", 11),
        ("Gemma3ForCausalLM", 13),
    ],
)
def test_each_architecture_has_its_number_of_parameters(
    base_config: dict[str, object], architecture: str, per_layer: int
) -> None:
    shapes = parameter_shapes(config_of(base_config, architecture))
    assert len(shapes) == 3 + 2 * per_layer
    assert shapes["model.layers.1.self_attn.q_proj.weight"] == (64, 64)
    assert shapes["model.layers.1.self_attn.k_proj.weight"] == (32, 64)
    assert shapes["model.layers.1.mlp.down_proj.weight"] == (64, 96)


def test_tied_embeddings_need_no_head(base_config: dict[str, object]) -> None:
    config = config_of(base_config, "LlamaForCausalLM")
    assert "lm_head.weight" in parameter_shapes(config)
    assert "lm_head.weight" not in parameter_shapes(replace(config, tie_embeddings=True))


def test_biases_follow_the_switches(base_config: dict[str, object]) -> None:
    config = replace(config_of(base_config, "LlamaForCausalLM"), attention_bias=True, attention_out_bias=True, mlp_bias=True)
    biases = {name: shape for name, shape in parameter_shapes(config).items() if name.endswith("bias")}
    assert len(biases) == 2 * 7
    assert biases["model.layers.0.self_attn.k_proj.bias"] == (32,) and biases["model.layers.0.mlp.up_proj.bias"] == (96,)
