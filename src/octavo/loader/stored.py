"""StoredTensor: one parameter as it lies in the file, still in its storage format and still memory-mapped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.errors import LoadError
from octavo.loader.formats import BLOCK_FORMATS, QuantBlocks, dequantise, first_non_finite, unpack
from octavo.loader.formats.floats import ITEM_BYTES

_CHECK_BYTES = 8 << 20
"""check_finite looks at about this much data at a time, so its temporaries stay in the cache."""

F32 = NDArray[np.float32]
RowOrder = NDArray[np.int32]


class StoredTensor(Protocol):
    """One parameter in whatever arrays its format has: one of rows (StoredRows), or codes, scales and zero points apart.

    name     the parameter's, e.g. "model.layers.0.self_attn.q_proj.weight"
    shape    [rows, columns] of a matrix, where rows are outputs and columns inputs; [n] of a vector
    format   "f32", "f16", "bf16", or the name of a format of codes
    source   "file: tensor name in the file", for error messages
    nbytes   bytes of all its arrays
    bits     of a code, 4 or 8; None: the values are floats
    group    columns that share a scale; None: the values are floats
    """

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def format(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def bits(self) -> int | None: ...

    @property
    def group(self) -> int | None: ...

    def to_float32(self, first_row: int = 0, last_row: int | None = None) -> F32:
        """Rows first_row..last_row as float32 [rows, columns] (vectors: the whole, [n]); exact for every format."""
        ...

    def to_codes(self) -> QuantBlocks:
        """The codes and scales of all rows. Raises: LoadError for floats."""
        ...

    def rows(self, first: int, last: int) -> StoredTensor:
        """Rows first..last alone, as a matrix [last - first, columns] (vectors: the elements)."""
        ...

    def reordered(self, order: RowOrder) -> StoredTensor:
        """With row i where row order[i] was; order is a permutation, int32 [rows]."""
        ...

    def check_finite(self) -> None:
        """Refuse a NaN or infinity among the values; among the scales and minimums, where the values are codes.

        Raises: LoadError naming file, tensor, row and column.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """A StoredTensor in one array: plain floats and the block types of GGUF.

    format     "f32", "f16", "bf16", or a block type in lower case: "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k".."q6_k"
    data       uint8 view of the raw bytes [rows, bytes_per_row] ([1, n] for a vector), usually into the memory map
    row_order  None, or int32 [rows]: logical row i is stored row row_order[i]; for a vector it orders the elements
    """

    name: str
    shape: tuple[int, ...]
    format: str
    data: NDArray[np.uint8]
    row_order: RowOrder | None
    source: str

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @property
    def bits(self) -> int | None:
        return BLOCK_FORMATS[self.format].bits if self.format in BLOCK_FORMATS else None

    @property
    def group(self) -> int | None:
        return BLOCK_FORMATS[self.format].group if self.format in BLOCK_FORMATS else None

    def to_float32(self, first_row: int = 0, last_row: int | None = None) -> F32:
        columns = self.shape[-1]
        if len(self.shape) == 1:
            values: F32 = dequantise(self.format, self.data, columns)[0]
            return values if self.row_order is None else values[self.row_order]
        return dequantise(self.format, self._stored(first_row, last_row), columns)

    def to_codes(self) -> QuantBlocks:
        return unpack(self.format, self._stored(0, None), self.shape[-1])

    def rows(self, first: int, last: int) -> StoredRows:
        if len(self.shape) > 1:
            return replace(self, shape=(last - first, self.shape[-1]), data=self._stored(first, last), row_order=None)
        if self.format not in ITEM_BYTES:
            raise LoadError(f"{self.source}: a vector of the format {self.format} cannot be split")
        item = ITEM_BYTES[self.format]
        if self.row_order is None:
            return replace(self, shape=(last - first,), data=self.data[:, first * item : last * item])
        elements = self.data.reshape(-1, item)[self.row_order[first:last]]
        return replace(self, shape=(last - first,), data=elements.reshape(1, -1), row_order=None)

    def reordered(self, order: RowOrder) -> StoredRows:
        return replace(self, row_order=order if self.row_order is None else self.row_order[order])

    def check_finite(self) -> None:
        # Plain floats are read whole; of blocks only the scale fields, though every page is touched.
        columns = self.shape[-1]
        rows, row_bytes = self.data.shape
        step = max(1, _CHECK_BYTES // max(1, row_bytes))
        for first in range(0, rows, step):
            found = first_non_finite(self.format, self.data[first : first + step], columns)
            if found is not None:
                field = "value" if self.format in ITEM_BYTES else f"{self.format} scale"
                raise LoadError(
                    f"{self.source}: NaN or infinite {field} at row {first + found[0]}, column {found[1]}; the file is damaged"
                )

    def _stored(self, first: int, last: int | None) -> NDArray[np.uint8]:
        """Raw bytes of logical rows first..last of a matrix; a view unless they are reordered."""
        return self.data[first:last] if self.row_order is None else self.data[self.row_order[first:last]]
