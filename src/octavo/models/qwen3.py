"""Qwen 3, dense (Yang et al., 2025)."""

from __future__ import annotations

from octavo.config.model import ModelConfig
from octavo.models.blocks import PreNormDecoder
from octavo.models.parameters import ParameterSource
from octavo.ops.interface import Vector, Weight


def load_qwen3(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> PreNormDecoder[Weight, Vector]:
    """Llama's shape with each head of q and k normalised before it is rotated; the upper layers may slide (layer_kinds)."""
    return PreNormDecoder(config, source, qk_norm=True)
