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


def folder_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Tensor in a folder -> shape, of the model of a configuration: parameters that share a tensor lie one under the other."""
    shapes: dict[str, tuple[int, ...]] = {}
    for parameter in declare(config):
        rows, *columns = shapes.get(parameter.folder.tensor, (0, *parameter.shape[1:]))
        shapes[parameter.folder.tensor] = (rows + parameter.shape[0], *columns)
    return shapes


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Parameter name -> shape, of the model of a configuration."""
    return {parameter.name: parameter.shape for parameter in declare(config)}
