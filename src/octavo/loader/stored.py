"""StoredTensor: one parameter as it lies in the file, still in its storage format and still memory-mapped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.errors import LoadError
from octavo.loader.formats import dequantise, first_non_finite

_CHECK_BYTES = 8 << 20
"""check_finite looks at about this much data at a time, so its temporaries stay in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A parameter under its Hugging Face name, e.g. "model.layers.0.self_attn.q_proj.weight".

    shape      logical shape, [rows, columns] for a matrix: rows are outputs, columns inputs
    format     "f32", "f16", "bf16", or a GGUF block type in lower case: "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k".."q6_k"
    data       uint8 view of the raw bytes [rows, bytes_per_row] ([1, n] for a vector), usually into the memory map
    row_order  None, or int32 [rows]: logical row i is stored row row_order[i] (GGUF permutes q and k of Llama models);
               for a vector it orders the elements
    source     "file: tensor name in the file", for error messages
    """

    name: str
    shape: tuple[int, ...]
    format: str
    data: NDArray[np.uint8]
    row_order: NDArray[np.int32] | None
    source: str

    def to_float32(self, first_row: int = 0, last_row: int | None = None) -> NDArray[np.float32]:
        """Logical rows first_row..last_row as float32 [rows, columns] (vectors: the whole, [n]); exact for every format."""
        columns = self.shape[-1]
        if len(self.shape) == 1:
            values: NDArray[np.float32] = dequantise(self.format, self.data, columns)[0]
            return values if self.row_order is None else values[self.row_order]
        if self.row_order is None:
            return dequantise(self.format, self.data[first_row:last_row], columns)
        return dequantise(self.format, self.data[self.row_order[first_row:last_row]], columns)


def check_finite(tensor: StoredTensor) -> None:
    """Refuse a tensor with a NaN or infinity among its values (block formats: among its scales and minimums).

    Reads the whole tensor for plain floats; for block formats only the scale fields, though every page is touched.
    Raises: LoadError naming file, tensor, row and column.
    """
    columns = tensor.shape[-1]
    rows, row_bytes = tensor.data.shape
    step = max(1, _CHECK_BYTES // max(1, row_bytes))
    for first in range(0, rows, step):
        found = first_non_finite(tensor.format, tensor.data[first : first + step], columns)
        if found is not None:
            field = "value" if tensor.format in ("f32", "f16", "bf16") else f"{tensor.format} scale"
            raise LoadError(
                f"{tensor.source}: NaN or infinite {field} at row {first + found[0]}, column {found[1]}; the file is damaged"
            )
