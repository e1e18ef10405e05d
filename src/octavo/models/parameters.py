"""ParameterSource: a checkpoint's tensors on their way into a backend, checked for presence and shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic

from octavo.errors import LoadError
from octavo.loader.stored import StoredTensor
from octavo.ops.interface import ParameterOps, Vector, Weight


class ParameterSource(Generic[Weight, Vector]):
    """What a model's constructor reads from. Names are those of Hugging Face, without ".weight" and ".bias".

    tensors   full name -> StoredTensor, as in Checkpoint.tensors
    ops       the backend's side
    origin    the checkpoint's path, for messages
    """

    def __init__(self, tensors: Mapping[str, StoredTensor], ops: ParameterOps[Weight, Vector], origin: str) -> None:
        self._tensors = tensors
        self._ops = ops
        self._origin = origin
        self._loaded: dict[tuple[tuple[str, ...], bool], Weight] = {}

    def linear(self, names: Sequence[str], rows: Sequence[int], columns: int, *, bias: bool = False) -> Weight:
        """One Weight of the parts `names`, one under the other; part i is [rows[i], columns], with bias a vector [rows[i]] too.

        The same parts give the same Weight again, so that tied embeddings are held once.
        Raises: LoadError naming file and tensor if a part is missing or has another shape.
        """
        key = (tuple(names), bias)
        if key not in self._loaded:
            parts = [self._tensor(f"{name}.weight", (count, columns)) for name, count in zip(names, rows, strict=True)]
            biases: list[StoredTensor | None] = [None] * len(parts)
            if bias:
                biases = [self._tensor(f"{name}.bias", (count,)) for name, count in zip(names, rows, strict=True)]
            self._loaded[key] = self._ops.load_linear(parts, biases)
        return self._loaded[key]

    def vector(self, name: str, size: int, offset: float = 0.0) -> Vector:
        """The vector name + ".weight" [size], offset added to each element. Raises: as linear."""
        return self._ops.load_vector(self._tensor(f"{name}.weight", (size,)), offset)

    def _tensor(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise LoadError(f"{self._origin}: tensor {name} is missing")
        if tensor.shape != shape:
            raise LoadError(f"{tensor.source}: {name} has shape {list(tensor.shape)}, the configuration asks for {list(shape)}")
        return tensor
