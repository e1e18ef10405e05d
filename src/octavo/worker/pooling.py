"""Pooler: the hidden states of one sequence, as its steps compute them, to one vector."""

from __future__ import annotations

import numpy as np

from octavo.ops.arrays import F32
from octavo.pooling_params import PoolingKind


class Pooler:
    """Takes the rows of a sequence in the order of their positions, in chunks of any size: no byte shows how it was cut.

    last and cls keep a row. mean adds the rows to a float32 sum one after the other, and divides it at the end.
    """

    def __init__(self, kind: PoolingKind) -> None:
        self._kind = kind
        self._num_rows = 0
        self._kept: F32 | None = None

    def add(self, first: int, rows: F32) -> None:
        """Hidden states [n, hidden_size] of the positions from `first` on. Rows that come again are passed over.

        Raises: ValueError if positions are missing that count.
        """
        if self._kind != "last" and first > self._num_rows:
            raise ValueError(f"position {first} was computed; the embedding needs those from {self._num_rows} on too")
        end = first + len(rows)
        if end <= self._num_rows:
            return
        fresh = rows[max(0, self._num_rows - first) :]
        if self._kind == "last":
            self._kept = fresh[-1].copy()
        elif self._kind == "mean":
            # Along the first axis numpy adds whole rows, in order; the sum so far is the first of them.
            summands = fresh if self._kept is None else np.concatenate([self._kept[None], fresh])
            with np.errstate(all="ignore"):  # what is not finite is refused in the end
                self._kept = np.add.reduce(summands, axis=0)
        elif self._kept is None:
            self._kept = fresh[0].copy()
        self._num_rows = end

    def vector(self) -> F32:
        """What the rows so far come to, float32 [hidden_size]. Raises: ValueError if it is not finite."""
        assert self._kept is not None, "no rows have come"
        if not np.isfinite(self._kept).all():
            raise ValueError("the model's hidden states are not finite")
        return self._kept / np.float32(self._num_rows) if self._kind == "mean" else self._kept
