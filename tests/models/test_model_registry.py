"""Names to models and devices, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.worker_driver import tiny_checkpoint

from octavo.errors import ConfigError, LoadError
from octavo.models.registry import declare, load_model
from octavo.models.source import LoadedParameters
from octavo.ops.reference.ops import ReferenceOps
from octavo.ops.registry import make_backend


def test_an_unknown_architecture_lists_the_known_ones(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path, "llama-gqa")
    with pytest.raises(LoadError) as caught:
        declare(replace(checkpoint.config, architecture="GptForCausalLM"))
    for name in ("GptForCausalLM", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"):
        assert name in caught.value.message


def test_an_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown device 'abacus'; known: cpu, reference"):
        make_backend("abacus", num_threads=1, isa="auto", dtype="auto", quantization="auto")


def test_an_activation_without_an_operation_is_refused(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path, "llama-gqa")
    with pytest.raises(LoadError, match="hidden_act is 'gelu'"):
        declare(replace(checkpoint.config, hidden_act="gelu"))


def test_tied_embeddings_are_held_once(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path, "llama-tied")
    model = load_model(checkpoint.config, LoadedParameters(checkpoint.tensors, ReferenceOps("auto", "auto")))
    assert model._head is model._embedding  # type: ignore[attr-defined]
