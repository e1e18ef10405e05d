"""Opening checkpoints in tests, with the parameters that the models of models/ declare."""

from __future__ import annotations

from pathlib import Path

from octavo.config.model import ModelConfig
from octavo.loader import checkpoint
from octavo.loader.checkpoint import Checkpoint
from octavo.models.registry import declare


def open_checkpoint(path: Path, load_format: str = "auto") -> Checkpoint:
    """octavo.loader.checkpoint.open_checkpoint."""
    return checkpoint.open_checkpoint(path, declare, load_format)


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Parameter name -> shape, of the model of a configuration."""
    return {parameter.name: parameter.shape for parameter in declare(config)}
