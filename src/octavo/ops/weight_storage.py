"""weight_storage: how a backend holds one matrix, by the rules of --dtype and --quantization.

    quantization   dtype auto                              dtype float32, bfloat16, float16
    auto, none     as stored                               values rounded to dtype
    int8           floats as q8_0                          values rounded to dtype, then q8_0
    int4           floats as q4_1, embedding and head      values rounded to dtype, then q4_1; embedding and head q8_0
                   as q8_0

With dtype auto, a matrix that is quantised in the file already stays as it is if its codes have the wanted width; another
width is refused, since quantising twice costs accuracy that nobody asked to spend. An explicit dtype asks for it.

The embedding and the output head stay at 8 bits, as in GGUF's 4-bit mixes: an error there reaches the logits directly.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import LoadError
from octavo.loader.formats import BLOCK_FORMATS
from octavo.loader.stored import StoredTensor

GROUP = 32
_DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_CODE_BITS = {"int8": 8, "int4": 4}
_CODES = {8: "q8_0", 4: "q4_1"}
_EIGHT_BITS_AT_LEAST = ("model.embed_tokens.weight", "lm_head.weight")


@dataclass(frozen=True, slots=True)
class WeightStorage:
    """float_type  "f32", "f16" or "bf16" that the values are rounded to first; None: blocks, kept to the bit
    codes       "q8_0" or "q4_1" that they are then rounded to, in groups of 32; None: nothing further
    """

    float_type: str | None
    codes: str | None


def weight_storage(part: StoredTensor, dtype: str, quantization: str) -> WeightStorage:
    """How to hold the matrix `part`; dtype and quantization as in LoadingConfig.

    Raises: LoadError naming file and tensor, and the way out, when the combination is impossible.
    """
    blocks = BLOCK_FORMATS.get(part.format)
    float_type = _DTYPES.get(dtype) or (None if blocks is not None else part.format)
    bits = _CODE_BITS.get(quantization)
    if bits is None:
        return WeightStorage(float_type, None)
    if part.name in _EIGHT_BITS_AT_LEAST:
        bits = 8
    if float_type is None:
        assert blocks is not None
        if blocks.bits == bits:
            return WeightStorage(None, None)
        raise LoadError(
            f"{part.source}: {part.name} is quantised in the file already, as {part.format}, and --quantization {quantization}"
            " would do it again; leave that out, or add --dtype float32 to quantise its values anew"
        )
    if part.shape[1] % GROUP:
        raise LoadError(
            f"{part.source}: {quantization} needs a multiple of {GROUP} columns, {part.name} has {part.shape[1]};"
            " use --quantization none"
        )
    return WeightStorage(float_type, _CODES[bits])
