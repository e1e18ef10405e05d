"""Parameter: one weight as a model declares it: name, shape, role, the axis it may be cut along, and where containers keep it.

A model declares its parameters once, in the constructors of models/. Random weights, the names in GGUF files and folders, the
precision of each weight and its share on several devices are all read from the declaration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Role = Literal["attention", "mlp", "embedding", "head", "norm", "router", "expert"]
"""What a parameter is for. Several rules depend on it, none on a name."""
Axis = Literal["output", "input"]
"""An axis of a matrix [outputs, inputs] along which devices may share it. A bias goes with the outputs."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a container keeps a parameter.

    tensor       name of the tensor
    first_row    None: the parameter is the whole tensor. Else it is the rows from there on, and other parameters are the rest
                 (fused q, k and v; experts in one stack, whose rows are counted through)
    interleaved  None: the rows of a head are two halves, as octavo rotates them. Else heads have so many rows, and they lie in
                 pairs, one of each half, for a rope that rotates neighbours
    rotary       rows of a head that lie in pairs, the first ones; None: all
    """

    tensor: str
    first_row: int | None = None
    interleaved: int | None = None
    rotary: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One array of numbers that a model needs.

    name     as in the model's own Hugging Face class, e.g. "model.layers.0.self_attn.q_proj.weight"
    shape    [outputs, inputs] of a matrix, [n] of a vector
    cut      None: every device needs all of it
    offset   the model adds this to each element. Folders hold the values without it, GGUF files with it
    folder, gguf   where a Hugging Face folder and a GGUF file keep it
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    cut: Axis | None
    offset: float = 0.0
    folder: Location
    gguf: Location


@dataclass(frozen=True, slots=True)
class Part:
    """A weight by its name without ".weight", with its bias, if it has one, under the name with ".bias".

    rows     outputs of a matrix, elements of a vector
    gguf     its location in a GGUF file, also without these ends
    folder   its location in a folder; None: the whole tensor of that name
    """

    name: str
    rows: int
    gguf: Location
    folder: Location | None = None

    def matrix(self, columns: int, role: Role, cut: Axis | None) -> Parameter:
        """The weight [rows, columns]."""
        return self._parameter("weight", (self.rows, columns), role, cut)

    def bias(self, role: Role, cut: Axis | None) -> Parameter:
        """The bias [rows]. Where the inputs of the matrix are cut, it is added once, after the sum."""
        return self._parameter("bias", (self.rows,), role, "output" if cut == "output" else None)

    def vector(self, role: Role, offset: float, *, is_bias: bool = False) -> Parameter:
        """The weight [rows], or the bias [rows] of a norm."""
        return self._parameter("bias" if is_bias else "weight", (self.rows,), role, None, offset)

    def _parameter(self, end: str, shape: tuple[int, ...], role: Role, cut: Axis | None, offset: float = 0.0) -> Parameter:
        folder = self.folder or Location(self.name)
        return Parameter(
            name=f"{self.name}.{end}",
            shape=shape,
            role=role,
            cut=cut,
            offset=offset,
            folder=replace(folder, tensor=f"{folder.tensor}.{end}"),
            gguf=replace(self.gguf, tensor=f"{self.gguf.tensor}.{end}"),
        )
