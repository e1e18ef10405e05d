"""Mistral 7B and its family (Jiang et al., 2023)."""

from __future__ import annotations

from octavo.config.model import ModelConfig
from octavo.models.blocks import PreNormDecoder
from octavo.models.parameters import ParameterSource


def load_mistral(config: ModelConfig, source: ParameterSource, max_model_len: int) -> PreNormDecoder:
    """Llama's shape; every layer sees sliding_window positions when the configuration has a window."""
    return PreNormDecoder(config, source, max_model_len)
