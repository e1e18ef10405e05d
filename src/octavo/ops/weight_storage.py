"""weight_storage: how a backend holds one matrix, by the rules of --dtype, --quantization and --quantization-group-size.

    quantization   dtype auto                             dtype float32, bfloat16, float16
    auto, none     as stored                              values rounded to dtype
    int8           floats as int8 groups                  values rounded to dtype, then to int8 groups
    int4           floats as int4 groups, some as int8    values rounded to dtype, then to int4 groups, some to int8
    w8a8           floats as w8a8, some as int8 groups    values rounded to dtype, then to w8a8, some to int8 groups
    awq, gptq, compressed-tensors, fp8: the folder's codes stay as stored whatever dtype is, its floats are as under auto

With dtype auto, a matrix that is quantised in the file already stays as it is if its codes have the wanted width and no
larger groups are asked for; anything else is refused, since quantising twice costs accuracy that nobody asked to spend. An
explicit dtype asks for it.

Some matrices are int8 groups instead:
- in int4 and w8a8 the embedding and the output head: an error there reaches the logits directly;
- in w8a8 down, whose gated inputs have a few very large columns that leave no steps for the others of the row, and q, k, v,
  whose errors attention takes the exponential of. docs/accuracy.md has the figures.
Routers are never rounded to codes: an error there sends a token to other experts.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.loading import CHECKPOINT_METHODS
from octavo.errors import LoadError
from octavo.loader.parameter import Axis, Role
from octavo.loader.stored import StoredTensor

STEP = 32
"""Columns of every matrix of codes are a multiple of this."""
MAX_CHANNEL_COLUMNS = 65536
"""of a w8a8 matrix: its int32 sums stay within half of their range."""
_DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_QUANTIZATIONS = ("int8", "int4", "w8a8")
_BITS = {"int8": 8, "int4": 4}
SMALLEST_GROUP = 32
"""of --quantization-group-size. A file's own groups of 16 are what was asked for, too, when it is this."""
_INT8_GROUPS: dict[str, tuple[tuple[Role, Axis | None], ...]] = {
    "int4": (("embedding", "output"), ("head", "output")),
    "w8a8": (
        ("embedding", "output"),
        ("head", "output"),
        ("mlp", "input"),
        ("expert", "input"),
        ("attention", "output"),
    ),
}
"""Role and cut of the matrices that these quantizations hold as int8 groups: ("mlp", "input") and ("expert", "input")
are down, ("attention", "output") is q, k and v."""


@dataclass(frozen=True, slots=True)
class Codes:
    """kind    "int8", "int4" or "w8a8"; loader/formats/quantise.py defines them
    group   columns per scale; all of them for w8a8
    """

    kind: str
    group: int


@dataclass(frozen=True, slots=True)
class WeightStorage:
    """float_type  "f32", "f16" or "bf16" that the values are rounded to first; None: blocks, kept to the bit
    codes       what they are then rounded to; None: nothing further
    """

    float_type: str | None
    codes: Codes | None


def weight_storage(
    part: StoredTensor, role: Role, cut: Axis | None, dtype: str, quantization: str, group_size: int
) -> WeightStorage:
    """How to hold the matrix `part`.

    role, cut                          as the model declares them
    dtype, quantization, group_size    as in LoadingConfig

    Raises: LoadError naming file and tensor, and the way out, when the combination is impossible.
    """
    if quantization in CHECKPOINT_METHODS and part.bits is not None:
        return WeightStorage(None, None)
    float_type = _DTYPES.get(dtype) or (part.format if part.bits is None else None)
    if quantization not in _QUANTIZATIONS or role == "router":
        return WeightStorage(float_type, None)
    kind = "int8" if (role, cut) in _INT8_GROUPS.get(quantization, ()) else quantization
    if float_type is None:
        if part.bits == _BITS.get(kind) and group_size == max(SMALLEST_GROUP, part.group or 0):
            return WeightStorage(None, None)
        raise LoadError(
            f"{part.source}: {part.name} is quantised in the file already, as {part.format}, and --quantization {quantization}"
            " would do it again; leave that out, or add --dtype float32 to quantise its values anew"
        )
    columns = part.shape[1]
    if columns % STEP:
        raise LoadError(
            f"{part.source}: {quantization} needs a multiple of {STEP} columns, {part.name} has {columns};"
            " use --quantization none"
        )
    if kind == "w8a8" and columns > MAX_CHANNEL_COLUMNS:
        raise LoadError(
            f"{part.source}: w8a8 sums at most {MAX_CHANNEL_COLUMNS} columns, {part.name} has {columns};"
            " use --quantization int8"
        )
    return WeightStorage(float_type, Codes(kind, columns if kind == "w8a8" else group_size))
