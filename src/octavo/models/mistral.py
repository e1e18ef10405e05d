"""Mistral 7B and its family (Jiang et al., 2023)."""

from __future__ import annotations

from octavo.config.model import ModelConfig
from octavo.models.blocks import PreNormDecoder
from octavo.models.parameters import ParameterSource
from octavo.ops.interface import Vector, Weight


def load_mistral(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> PreNormDecoder[Weight, Vector]:
    """Llama's shape; every layer sees sliding_window positions when the configuration has a window."""
    return PreNormDecoder(config, source)
