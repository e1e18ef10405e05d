"""Qwen 1.5, 2 and 2.5 (Yang et al., 2024)."""

from __future__ import annotations

from octavo.config.model import ModelConfig
from octavo.models.blocks import PreNormDecoder
from octavo.models.parameters import ParameterSource
from octavo.ops.interface import Vector, Weight


def load_qwen2(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> PreNormDecoder[Weight, Vector]:
    """Llama's shape with biases on q, k and v; the upper layers may slide (layer_kinds)."""
    return PreNormDecoder(config, source)
