"""Keys of GGUF architectures that are their own, and what a file leaves to the architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.config.model import ModelConfig
from octavo.errors import LoadError
from octavo.loader.checkpoint import open_config

F32 = NDArray[np.float32]


@pytest.fixture
def read(write_gguf: Any) -> Any:
    """read(architecture, key=...): the configuration of a file of two layers; "__" in a key stands for a dot."""

    def read(architecture: str, arrays: Mapping[str, F32] | None = None, **keys: Any) -> ModelConfig:
        named = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
        path: Path = write_gguf(architecture, keys=named, arrays=arrays)
        return open_config(path)[0]

    return read


def test_phi3s_rope_is_told_by_its_tensors(read: Any) -> None:
    factors = {f"rope_factors_{name}.weight": np.full(6, value, np.float32) for name, value in (("short", 1), ("long", 4))}
    keys = {"rope__dimension_count": 12, "rope__scaling__original_context_length": 64, "rope__scaling__attn_factor": 1.5}
    rope = read("phi3", factors, **keys).rope
    assert (rope.kind, rope.rotary_dim, rope.original_max_position, rope.attention_factor) == ("longrope", 12, 64, 1.5)
    assert rope.short_factors == (1.0,) * 6 and rope.long_factors == (4.0,) * 6
    assert read("phi3").rope.kind == "default"


def test_phi3_slides_where_the_file_has_a_window(read: Any) -> None:
    assert read("phi3", attention__sliding_window=0).layer_kinds == ("full", "full")
    assert read("phi3", attention__sliding_window=32).layer_kinds == ("sliding", "sliding")


def test_gemma2_has_a_window_and_caps_without_keys(read: Any) -> None:
    config = read("gemma2")
    assert (config.attn_softcap, config.final_softcap, config.sliding_window) == (50.0, 30.0, 4096)
    assert config.layer_kinds == ("sliding", "full") and config.embedding_scale == 8.0 and config.query_scale == 0.25
    assert read("gemma2", attn_logit_softcapping=20.0).attn_softcap == 20.0


@pytest.mark.parametrize(("architecture", "windowed"), [("olmo2", "Olmo3ForCausalLM"), ("exaone4", "Exaone4ForCausalLM")])
def test_listed_layers_slide(read: Any, architecture: str, windowed: str) -> None:
    assert read(architecture).sliding_window is None and read(architecture).rotated == ()
    config = read(architecture, attention__sliding_window=16, attention__sliding_window_pattern=[False, True])
    assert config.architecture == windowed and config.layer_kinds == ("full", "sliding") and config.sliding_window == 16
    assert config.rotated == ((False, True) if architecture == "exaone4" else ())
    with pytest.raises(LoadError, match="attention.sliding_window_pattern lists 3 flags for 2 layers"):
        read(architecture, attention__sliding_window=16, attention__sliding_window_pattern=[False, True, True])


def test_granites_multipliers_and_rope(read: Any) -> None:
    config = read("granite")
    assert (config.embedding_scale, config.query_scale, config.residual_multiplier, config.logits_scaling) == (1, 0.25, 1, 1)
    scales = {"embedding_scale": 12.0, "attention__scale": 0.5, "residual_scale": 0.25, "logit_scale": 8.0}
    config = read("granite", **scales)
    assert (config.embedding_scale, config.query_scale, config.residual_multiplier, config.logits_scaling) == (12, 0.5, 0.25, 8)
    assert read("granite", residual_scale=0.0).residual_multiplier == 1.0
    assert read("granite", rope__scaling__finetuned=False).rotated == (False, False)
    assert read("granite", rope__scaling__finetuned=True).rotated == ()
    with pytest.raises(LoadError, match=r"granite\.residual_scale is "):
        read("granite", residual_scale=1e-20)


def test_mistral3_takes_its_factor_and_its_temperature_from_keys(read: Any) -> None:
    yarn = {"rope__scaling__type": "yarn", "rope__scaling__factor": 16.0, "rope__scaling__original_context_length": 64}
    config = read("mistral3", **yarn, rope__scaling__yarn_log_multiplier=1.0, attention__temperature_scale=0.5)
    assert (config.rope.mscale, config.rope.mscale_all_dim, config.rope.temperature) == (1.0, 1.0, 0.0)
    assert config.query_rope is not None and config.query_rope.temperature == 0.5
    assert read("mistral3").query_rope is None
    with pytest.raises(LoadError, match="attention.temperature_scale needs rope.scaling.type yarn"):
        read("mistral3", attention__temperature_scale=0.5)


def test_what_would_be_computed_wrongly_is_refused(read: Any) -> None:
    for architecture in ("glm4", "exaone4"):
        with pytest.raises(LoadError, match="nextn_predict_layers is not 0"):
            read(architecture, nextn_predict_layers=1)
    with pytest.raises(LoadError, match="rope.dimension_sections is .*; positions of images are not supported"):
        read("glm4", rope__dimension_sections=[8, 8, 0, 0])
    for architecture in ("smollm3", "granite", "mistral3", "llama"):
        with pytest.raises(LoadError, match="rope.dimension_count is 8, but octavo rotates whole heads"):
            read(architecture, rope__dimension_count=8)
