"""Llama 1 to 3 (Touvron et al., 2023; Dubey et al., 2024) and what shares its shape, such as SmolLM2."""

from __future__ import annotations

from octavo.config.model import ModelConfig
from octavo.models.blocks import PreNormDecoder
from octavo.models.parameters import ParameterSource
from octavo.ops.interface import Vector, Weight


def load_llama(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> PreNormDecoder[Weight, Vector]:
    """Pre-norm decoder: grouped queries, rotary positions (every scaling), SiLU-gated MLP, biases where the config has them."""
    return PreNormDecoder(config, source)
