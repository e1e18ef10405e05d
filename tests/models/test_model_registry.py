"""What a model's constructor asks of its parameters, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from octavo.errors import ConfigError, LoadError
from octavo.models.parameters import ParameterSource
from octavo.models.registry import load_model
from octavo.ops.reference.ops import ReferenceOps
from octavo.ops.registry import make_backend
from worker_driver import tiny_checkpoint


def test_an_unknown_architecture_lists_the_known_ones(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path, "llama-gqa")
    source = ParameterSource(checkpoint.tensors, ReferenceOps("auto", "auto"), "here")
    with pytest.raises(LoadError) as caught:
        load_model(replace(checkpoint.config, architecture="GptForCausalLM"), source)
    for name in ("GptForCausalLM", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"):
        assert name in caught.value.message


def test_an_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown device 'abacus'; known: cpu, reference"):
        make_backend("abacus", num_threads=1, isa="auto", dtype="auto", quantization="auto")


def test_a_missing_tensor_is_named_with_its_file(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path, "llama-gqa")
    name = "model.layers.1.self_attn.k_proj.weight"
    tensors = {key: value for key, value in checkpoint.tensors.items() if key != name}
    with pytest.raises(LoadError, match=f"model.safetensors: tensor {name} is missing"):
        load_model(checkpoint.config, ParameterSource(tensors, ReferenceOps("auto", "auto"), "model.safetensors"))


def test_a_tensor_of_another_shape_is_named_with_its_file(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path, "llama-gqa")
    source = ParameterSource(checkpoint.tensors, ReferenceOps("auto", "auto"), "here")
    with pytest.raises(LoadError, match=r"model.safetensors: .*gate_proj.weight has shape \[96, 64\].* \[80, 64\]"):
        load_model(replace(checkpoint.config, intermediate_size=80), source)


def test_an_activation_without_an_operation_is_refused(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path, "llama-gqa")
    source = ParameterSource(checkpoint.tensors, ReferenceOps("auto", "auto"), "here")
    with pytest.raises(LoadError, match="hidden_act is 'gelu'"):
        load_model(replace(checkpoint.config, hidden_act="gelu"), source)


def test_tied_embeddings_are_held_once(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path, "llama-tied")
    source = ParameterSource(checkpoint.tensors, ReferenceOps("auto", "auto"), "here")
    model = load_model(checkpoint.config, source)
    assert model._head is model._embedding  # type: ignore[attr-defined]
