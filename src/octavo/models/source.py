"""ParameterSource: where a model's constructor gets its parameters. Asking for them is what declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol

from octavo.loader.parameter import Axis, Parameter, Part, Role
from octavo.loader.stored import StoredTensor
from octavo.ops.interface import ParameterOps, Vector, Vector_co, Weight, Weight_co


class ParameterSource(Protocol[Weight_co, Vector_co]):
    """A constructor runs twice: with a Declaration, before anything is loaded, and with LoadedParameters."""

    def linear(self, parts: Sequence[Part], columns: int, *, role: Role, cut: Axis | None, bias: bool = False) -> Weight_co:
        """One Weight of parts [rows, columns] one under the other (q, k, v in one product), each with a bias if `bias`.

        The same parts give the same Weight again, so that tied embeddings are held once.
        """
        ...

    def vector(self, part: Part, *, role: Role, offset: float = 0.0, is_bias: bool = False) -> Vector_co:
        """A vector [rows], offset added to each element; is_bias: the bias of a norm."""
        ...


class Declaration:
    """Notes what a constructor asks for, and gives it nothing.

    parameters   in the order in which they were asked for
    """

    def __init__(self) -> None:
        self._parameters: dict[str, Parameter] = {}

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(self._parameters.values())

    def linear(self, parts: Sequence[Part], columns: int, *, role: Role, cut: Axis | None, bias: bool = False) -> None:
        for part in parts:
            self._note(part.matrix(columns, role, cut))
            if bias:
                self._note(part.bias(role, cut))

    def vector(self, part: Part, *, role: Role, offset: float = 0.0, is_bias: bool = False) -> None:
        self._note(part.vector(role, offset, is_bias=is_bias))

    def _note(self, parameter: Parameter) -> None:
        known = self._parameters.setdefault(parameter.name, parameter)
        assert known == parameter, f"{parameter.name} is declared in two ways"


class LoadedParameters(Generic[Weight, Vector]):
    """Hands a checkpoint's tensors over to a backend.

    tensors   parameter name -> tensor, in their declared shapes: Checkpoint.tensors
    ops       the backend's side
    """

    def __init__(self, tensors: Mapping[str, StoredTensor], ops: ParameterOps[Weight, Vector]) -> None:
        self._tensors = tensors
        self._ops = ops
        self._loaded: dict[tuple[Part, ...], Weight] = {}

    def linear(self, parts: Sequence[Part], columns: int, *, role: Role, cut: Axis | None, bias: bool = False) -> Weight:
        key = tuple(parts)
        if key not in self._loaded:
            matrices = [self._tensors[part.matrix(columns, role, cut).name] for part in parts]
            biases = [self._tensors[part.bias(role, cut).name] if bias else None for part in parts]
            self._loaded[key] = self._ops.load_linear(matrices, biases, role, cut)
        return self._loaded[key]

    def vector(self, part: Part, *, role: Role, offset: float = 0.0, is_bias: bool = False) -> Vector:
        return self._ops.load_vector(self._tensors[part.vector(role, offset, is_bias=is_bias).name], offset)
