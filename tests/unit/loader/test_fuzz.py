"""Damaged files: whatever the bytes are, opening and reading a checkpoint works or raises LoadError, in bounded memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.checkpoints import open_checkpoint

from octavo.errors import LoadError
from octavo.loader.fields import Fields
from octavo.loader.gguf import GgufFile
from octavo.loader.hf_config import READERS, model_config
from octavo.loader.safetensors import SafetensorsFile

WriteGguf = Callable[..., Path]
WriteFolder = Callable[..., Path]

PEAK_BYTES = 64 << 20
"""Far above what the tiny files need, far below what a believed length of 2**40 would take."""

FUZZ = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
Steps = list[tuple[str, float, int]]
LENGTHS = [0, 1, 255, 1 << 16, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]

mutations = st.lists(
    st.one_of(
        st.tuples(st.just("byte"), st.floats(0, 1, exclude_max=True), st.integers(0, 255)),
        st.tuples(st.just("u32"), st.floats(0, 1, exclude_max=True), st.sampled_from(LENGTHS)),
        st.tuples(st.just("u64"), st.floats(0, 1, exclude_max=True), st.sampled_from(LENGTHS)),
        st.tuples(st.just("cut"), st.floats(0, 1, exclude_max=True), st.just(0)),
        st.tuples(st.just("drop"), st.floats(0, 1, exclude_max=True), st.integers(1, 9)),
        st.tuples(st.just("grow"), st.floats(0, 1, exclude_max=True), st.integers(1, 9)),
    ),
    min_size=1,
    max_size=4,
)


def mutate(content: bytes, steps: Steps, reach: int) -> bytes:
    """Apply the steps; positions are fractions of the first `reach` bytes, the header where damage hurts most."""
    data = bytearray(content)
    for kind, fraction, value in steps:
        at = int(fraction * min(reach, len(data)))
        if kind == "byte":
            data[at : at + 1] = bytes([value])
        elif kind == "u32":
            data[at : at + 4] = struct.pack("<I", value & 0xFFFFFFFF)
        elif kind == "u64":
            data[at : at + 8] = struct.pack("<Q", value)
        elif kind == "cut":
            del data[at:]
        elif kind == "drop":
            del data[at : at + value]
        else:
            data[at:at] = b"\x01" * value
    return bytes(data)


def open_and_read(path: Path) -> bool:
    """Open, read every tensor, check it: True on success, False on LoadError; anything else fails the test."""
    tracemalloc.start()
    try:
        checkpoint = open_checkpoint(path)
        for tensor in checkpoint.tensors.values():
            tensor.check_finite()
            assert tensor.to_float32().shape == tensor.shape
        succeeded = True
    except LoadError as error:
        assert "\n" not in error.message
        succeeded = False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < PEAK_BYTES
    return succeeded


@dataclass(frozen=True)
class Target:
    """A file to damage, its whole content, the bytes worth hitting, and what to open."""

    path: Path
    content: bytes
    reach: int
    model: Path

    def damage_and_open(self, steps: Steps) -> bool:
        self.path.write_bytes(mutate(self.content, steps, self.reach))
        return open_and_read(self.model)


def target(path: Path, reach: int, model: Path) -> Target:
    return Target(path, path.read_bytes(), reach, model)


@pytest.fixture
def llama_gguf(write_gguf: WriteGguf) -> Target:
    path = write_gguf()
    return target(path, GgufFile(path).header_bytes, path)


@pytest.fixture
def gemma_gguf(write_gguf: WriteGguf) -> Target:
    """The first kilobyte holds the metadata that becomes the configuration."""
    path = write_gguf("gemma3", keys={"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0})
    return target(path, 1024, path)


@pytest.fixture
def weights(write_folder: WriteFolder) -> Target:
    path = write_folder() / "model.safetensors"
    return target(path, SafetensorsFile(path).header_bytes, path.parent)


@pytest.fixture(params=["config.json", "model.safetensors.index.json"])
def json_file(write_folder: WriteFolder, request: pytest.FixtureRequest) -> Target:
    path = write_folder(shards=2) / str(request.param)
    return target(path, path.stat().st_size, path.parent)


def test_the_undamaged_files_open(llama_gguf: Target, gemma_gguf: Target, weights: Target, json_file: Target) -> None:
    assert all(one.damage_and_open([]) for one in (llama_gguf, gemma_gguf, weights, json_file))


@FUZZ
@given(steps=mutations)
def test_a_damaged_gguf_loads_or_is_refused(llama_gguf: Target, steps: Steps) -> None:
    llama_gguf.damage_and_open(steps)


@FUZZ
@given(steps=mutations)
def test_damaged_gemma_metadata_loads_or_is_refused(gemma_gguf: Target, steps: Steps) -> None:
    gemma_gguf.damage_and_open(steps)


@FUZZ
@given(steps=mutations)
def test_damaged_safetensors_load_or_are_refused(weights: Target, steps: Steps) -> None:
    weights.damage_and_open(steps)


@FUZZ
@given(steps=mutations)
def test_damaged_json_loads_or_is_refused(json_file: Target, steps: Steps) -> None:
    json_file.damage_and_open(steps)


CONFIG_KEYS = [
    *("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "num_hidden_layers"),
    *("max_position_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "layer_types", "sliding_window"),
    *("original_max_position_embeddings", "no_rope_layers", "no_rope_layer_interval", "residual_multiplier"),
    *("sliding_window_pattern", "logits_scaling", "attn_logit_softcapping", "llama_4_scaling_beta"),
    *("eos_token_id", "rms_norm_eps", "partial_rotary_factor", "hidden_act", "torch_dtype", "architectures"),
]
json_values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers(), max_size=3), st.just({})
)


@FUZZ
@given(
    changes=st.dictionaries(
        st.sampled_from(CONFIG_KEYS),
        json_values,
        min_size=1,
        max_size=3,
    ),
    architecture=st.sampled_from(list(READERS)),
)
def test_a_config_of_any_values_is_read_or_refused(
    base_config: dict[str, object], changes: dict[str, object], architecture: str
) -> None:
    values = base_config | {"architectures": [architecture]} | changes
    try:
        config = model_config(Fields(values, "config.json"), Fields({}, "generation_config.json"))
    except LoadError:
        return
    assert config.num_heads % config.num_kv_heads == 0 and config.hidden_size > 0
    assert not config.causal or len(config.layer_kinds) == config.num_layers
    assert np.isfinite(config.query_scale) and np.isfinite(config.norm_eps / config.residual_multiplier**2)
