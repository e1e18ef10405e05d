"""What each model declares: names, shapes, roles, cuts, and where containers keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests import tiny_experts, tiny_families, tiny_models
from tests.checkpoints import open_checkpoint, parameter_shapes
from tests.worker_driver import tiny_checkpoint

from octavo.config.model import ModelConfig
from octavo.loader.checkpoint import open_config
from octavo.loader.parameter import Axis, Parameter, Role
from octavo.loader.stored import StoredTensor
from octavo.models.registry import MODELS, declare, load_model
from octavo.models.source import LoadedParameters
from octavo.ops.reference.ops import ReferenceOps

VARIANT_OF = {
    "LlamaForCausalLM": ("llama-gqa", 9),
    "MistralForCausalLM": ("mistral", 9),
    "Qwen2ForCausalLM": ("qwen2", 12),
    "Qwen3ForCausalLM": ("qwen3", 11),
    "Gemma2ForCausalLM": ("gemma2", 11),
    "Gemma3ForCausalLM": ("gemma3", 13),
    "Phi3ForCausalLM": ("phi3", 9),
    "SmolLM3ForCausalLM": ("smollm3", 9),
    "Olmo2ForCausalLM": ("olmo2", 11),
    "Olmo3ForCausalLM": ("olmo3", 11),
    "GraniteForCausalLM": ("granite", 9),
    "GraniteMoeHybridForCausalLM": ("granite4", 9),
    "GlmForCausalLM": ("glm", 12),
    "Glm4ForCausalLM": ("glm4", 14),
    "Ministral3ForCausalLM": ("ministral3", 9),
    "Exaone4ForCausalLM": ("exaone4", 11),
    "SeedOssForCausalLM": ("seed-oss", 12),
}
"""Architecture -> a variant and its parameters per layer."""


def test_every_architecture_is_tested() -> None:
    with_experts = {variant.config["architectures"][0] for variant in tiny_experts.VARIANTS.values()}
    elsewhere = {"BertModel", *with_experts}
    assert {*VARIANT_OF, *elsewhere} == set(MODELS.names), "BertModel in test_bert.py, experts in test_tiny_experts.py"


def config_of(folder: Path, name: str) -> ModelConfig:
    return open_config(tiny_models.write_folder(folder, (tiny_models.VARIANTS | tiny_families.VARIANTS)[name].config, {}))[0]


def layer_of(declared: tuple[Parameter, ...]) -> Mapping[str, Parameter]:
    """The second layer's parameters by the end of their names."""
    prefix = "model.layers.1."
    return {parameter.name.removeprefix(prefix): parameter for parameter in declared if parameter.name.startswith(prefix)}


@pytest.mark.parametrize("architecture", VARIANT_OF)
def test_each_architecture_declares_its_parameters_once(architecture: str, tmp_path: Path) -> None:
    variant, per_layer = VARIANT_OF[architecture]
    config = config_of(tmp_path, variant)
    declared = declare(config)
    assert len(layer_of(declared)) == per_layer
    assert len({parameter.name for parameter in declared}) == len(declared)
    for places in ([parameter.gguf for parameter in declared], [parameter.folder for parameter in declared]):
        assert len({(place.tensor, place.first_row) for place in places}) == len(declared)
    shapes = parameter_shapes(config)
    q_rows = config.num_heads * config.head_dim
    assert shapes["model.layers.1.self_attn.q_proj.weight"] == (q_rows, 64)
    assert shapes["model.layers.1.self_attn.o_proj.weight"] == (64, q_rows)
    assert shapes["model.layers.1.mlp.down_proj.weight"] == (64, config.intermediate_size)


@pytest.mark.parametrize("architecture", VARIANT_OF)
def test_roles_and_cuts_are_the_same_in_every_family(architecture: str, tmp_path: Path) -> None:
    declared = declare(config_of(tmp_path, VARIANT_OF[architecture][0]))
    expected: dict[str, tuple[Role, Axis | None]] = {
        "self_attn.q_proj.weight": ("attention", "output"),
        "self_attn.v_proj.weight": ("attention", "output"),
        "self_attn.o_proj.weight": ("attention", "input"),
        "mlp.gate_proj.weight": ("mlp", "output"),
        "mlp.up_proj.weight": ("mlp", "output"),
        "mlp.down_proj.weight": ("mlp", "input"),
    }
    layer = layer_of(declared)
    assert {name: (layer[name].role, layer[name].cut) for name in expected} == expected
    whole = {parameter.role for parameter in declared if parameter.cut is None}
    assert whole == {"norm"}
    assert all(len(parameter.shape) == 1 for parameter in declared if parameter.role == "norm")


def test_tied_embeddings_need_no_head(tmp_path: Path) -> None:
    config = config_of(tmp_path, "llama-gqa")
    assert "lm_head.weight" in parameter_shapes(config)
    assert "lm_head.weight" not in parameter_shapes(replace(config, tie_embeddings=True))


def test_biases_follow_the_switches_and_go_with_the_outputs(tmp_path: Path) -> None:
    config = replace(config_of(tmp_path, "llama-gqa"), attention_bias=True, attention_out_bias=True, mlp_bias=True)
    biases = {parameter.name: parameter for parameter in declare(config) if parameter.name.endswith("bias")}
    assert len(biases) == 2 * 7
    assert biases["model.layers.0.self_attn.k_proj.bias"].shape == (32,)
    assert biases["model.layers.0.self_attn.k_proj.bias"].cut == "output"
    assert biases["model.layers.0.mlp.up_proj.bias"].shape == (96,)
    assert biases["model.layers.0.mlp.down_proj.bias"].cut is None


PAIRED = ("Llama", "Mistral", "SmolLM3", "Granite", "GraniteMoeHybrid", "Ministral3", "Glm", "Glm4")
"""Families that llama.cpp rotates by neighbours; GLM does so itself, so that its folders hold pairs too."""


def test_heads_lie_in_pairs_where_neighbours_are_rotated(tmp_path: Path) -> None:
    for architecture, (variant, _) in VARIANT_OF.items():
        config = config_of(tmp_path, variant)
        layer = layer_of(declare(config))
        name = architecture.removesuffix("ForCausalLM")
        in_gguf, in_folder = name in PAIRED, name in ("Glm", "Glm4")
        for part in ("q_proj", "k_proj"):
            places = layer[f"self_attn.{part}.weight"]
            assert places.gguf.interleaved == (config.head_dim if in_gguf else None)
            assert places.folder.interleaved == (config.head_dim if in_folder else None)
            assert places.gguf.rotary == (8 if in_folder else None)
        others = [parameter for end, parameter in layer.items() if "q_proj" not in end and "k_proj" not in end]
        assert {place.interleaved for parameter in others for place in (parameter.gguf, parameter.folder)} == {None}


class Noted(dict[str, StoredTensor]):
    """A checkpoint's tensors, and which of them were asked for."""

    def __init__(self, tensors: Mapping[str, StoredTensor]) -> None:
        super().__init__(tensors)
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> StoredTensor:
        self.asked.append(name)
        return super().__getitem__(name)


@pytest.mark.parametrize("architecture", VARIANT_OF)
def test_a_model_loads_what_it_declares_and_nothing_else(architecture: str, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path, VARIANT_OF[architecture][0])
    tensors = Noted(checkpoint.tensors)
    load_model(checkpoint.config, LoadedParameters(tensors, ReferenceOps("auto", "auto")))
    assert sorted(tensors.asked) == sorted(parameter.name for parameter in checkpoint.parameters)


def test_a_checkpoint_keeps_the_declaration(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path, "llama-gqa")
    assert checkpoint.parameters == declare(checkpoint.config)
    assert open_checkpoint(tmp_path, "dummy").parameters == checkpoint.parameters
