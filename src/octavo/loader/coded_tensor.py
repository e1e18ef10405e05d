"""CodedTensor and ScaledFloats: matrices whose codes, scales and zero points, or values and scales, are arrays apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from octavo.errors import LoadError
from octavo.loader.formats import QuantBlocks, evaluate
from octavo.loader.stored import F32, RowOrder

_GROUPS = (128, 64, 32, 16)
_STEP = 32


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A matrix as it is stored: value = scale * (code - zero).

    shape    (rows, columns)
    bits     of a code: 2, 3, 4 or 8
    codes    makes them: uint8 [rows, columns]
    scales   float32 [rows, groups]
    zeros    int32 [rows, groups]
    group_of int32 [columns]: the group of each column, in any order
    """

    shape: tuple[int, int]
    bits: int
    codes: Callable[[], NDArray[np.uint8]]
    scales: F32
    zeros: NDArray[np.int32]
    group_of: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class CodedTensor:
    """A StoredTensor of codes in groups. Raises: LoadError naming file and tensor for groups that octavo cannot hold.

    chosen   rows of the stored matrix that it has, in order; None: all
    """

    name: str
    source: str
    grid: Grid
    chosen: RowOrder | None = None

    def __post_init__(self) -> None:
        rows, columns = self.grid.shape
        groups = self.grid.scales.shape[1]
        if self.grid.scales.shape != (rows, groups) or self.grid.zeros.shape != (rows, groups) or groups == 0:
            raise LoadError(
                f"{self.source}: scales {list(self.grid.scales.shape)} and zero points {list(self.grid.zeros.shape)} "
                f"do not fit a matrix {[rows, columns]}"
            )
        group_of = self.grid.group_of
        if group_of.shape != (columns,) or int(group_of.min()) < 0 or int(group_of.max()) >= groups:
            raise LoadError(f"{self.source}: its columns name groups beyond the {groups} that have scales")
        if columns % _STEP or _widest(group_of) is None:
            raise LoadError(
                f"{self.source}: {groups} groups over {columns} columns; octavo holds multiples of 16 columns a group"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.grid.shape[0] if self.chosen is None else len(self.chosen), self.grid.shape[1])

    @property
    def format(self) -> str:
        return f"int{self.grid.bits}"

    @property
    def nbytes(self) -> int:
        rows, columns = self.shape
        return int(rows * columns * self.grid.bits // 8 + 2 * rows * self.grid.scales.shape[1])

    @property
    def bits(self) -> Literal[4, 8]:
        return 8 if self.grid.bits == 8 else 4

    @property
    def group(self) -> int:
        """The widest group that octavo has and that divides the file's; the last one of a row may be shorter."""
        widest = _widest(self.grid.group_of)
        assert widest is not None
        return widest

    def to_float32(self, first_row: int = 0, last_row: int | None = None) -> F32:
        return evaluate(self.rows(first_row, self.shape[0] if last_row is None else last_row).to_codes())

    def to_codes(self) -> QuantBlocks:
        rows = slice(None) if self.chosen is None else self.chosen
        codes, scales, zeros = self._all_codes()[rows], self.grid.scales[rows], self.grid.zeros[rows]
        # Columns of a group side by side; where they are so already, the codes stay as they are.
        order = np.argsort(self.grid.group_of, kind="stable").astype(np.int32)
        moved = None if bool((order[:-1] < order[1:]).all()) else order
        if moved is not None:
            codes = np.take(codes, moved, axis=1)
        starts = self.grid.group_of[order][:: self.group]
        scales, zeros = np.ascontiguousarray(scales[:, starts]), np.ascontiguousarray(zeros[:, starts])
        zero = int(zeros.flat[0]) if zeros.size else 0
        is_half = bool((scales == scales.astype(np.float16)).all()) if np.abs(scales).max(initial=0) < 65504 else False
        if (zeros == zero).all():
            return QuantBlocks(codes, self.bits, self.group, zero, scales, None, "f16" if is_half else "f32", moved)
        return QuantBlocks(codes, self.bits, self.group, 0, scales, -scales * zeros.astype(np.float32), "f32", moved)

    def _all_codes(self) -> NDArray[np.uint8]:
        try:
            codes = self.grid.codes()
        except ValueError as error:
            raise LoadError(f"{self.source}: its arrays do not fit each other ({error})") from None
        if codes.shape != self.grid.shape:
            raise LoadError(f"{self.source}: has codes of shape {list(codes.shape)}, expected {list(self.grid.shape)}")
        return codes

    def rows(self, first: int, last: int) -> CodedTensor:
        chosen = np.arange(self.grid.shape[0], dtype=np.int32) if self.chosen is None else self.chosen
        return replace(self, chosen=chosen[first:last])

    def reordered(self, order: RowOrder) -> CodedTensor:
        return replace(self, chosen=order if self.chosen is None else self.chosen[order])

    def check_finite(self) -> None:
        bad = np.argwhere(~np.isfinite(self.grid.scales))
        if len(bad):
            raise LoadError(f"{self.source}: NaN or infinite scale at row {bad[0][0]}, group {bad[0][1]}; the file is damaged")


def _widest(group_of: NDArray[np.int32]) -> int | None:
    """The widest of octavo's groups in which all columns share a scale, when the columns of a group lie side by side."""
    sorted_groups = np.sort(group_of)
    fits = (group for group in _GROUPS if (np.repeat(sorted_groups[::group], group)[: len(group_of)] == sorted_groups).all())
    return next(fits, None)


@dataclass(frozen=True, slots=True, eq=False)
class ScaledFloats:
    """A StoredTensor of 8-bit floats with scales, held as bfloat16: products with scales are rounded to it.

    values   makes them: float32 [rows, columns]
    """

    name: str
    shape: tuple[int, ...]
    source: str
    values: Callable[[], F32]
    chosen: RowOrder | None = None

    @property
    def format(self) -> str:
        return "bf16"

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape))

    @property
    def bits(self) -> None:
        return None

    @property
    def group(self) -> None:
        return None

    def to_float32(self, first_row: int = 0, last_row: int | None = None) -> F32:
        try:
            values = self.values()
        except ValueError as error:
            raise LoadError(f"{self.source}: its arrays do not fit each other ({error})") from None
        return (values if self.chosen is None else values[self.chosen])[first_row:last_row]

    def to_codes(self) -> QuantBlocks:
        raise LoadError(f"{self.source}: holds floats, not codes")

    def rows(self, first: int, last: int) -> ScaledFloats:
        chosen = np.arange(self.shape[0], dtype=np.int32) if self.chosen is None else self.chosen
        return replace(self, shape=(last - first, self.shape[1]), chosen=chosen[first:last])

    def reordered(self, order: RowOrder) -> ScaledFloats:
        return replace(self, chosen=order if self.chosen is None else self.chosen[order])

    def check_finite(self) -> None:
        bad = np.argwhere(~np.isfinite(self.to_float32()))
        if len(bad):
            raise LoadError(f"{self.source}: NaN or infinite value at row {bad[0][0]}, column {bad[0][1]}; the file is damaged")
