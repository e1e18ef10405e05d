"""SettingsTable: sampling settings of the worker's sequences, one array per field, one entry per batch row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.ops.arrays import F32, I32
from octavo.step import NewSequence

_SEED_MASK = 2**64 - 1


class SettingsTable:
    """Fields as in SampleRows, [rows] each; set when a sequence is added, gathered when the sequences of a step are others."""

    def __init__(self, rows: int) -> None:
        self.temperature: F32 = np.zeros(rows, np.float32)
        self.top_k: I32 = np.zeros(rows, np.int32)
        self.top_p: F32 = np.ones(rows, np.float32)
        self.min_p: F32 = np.zeros(rows, np.float32)
        self.repetition: F32 = np.ones(rows, np.float32)
        self.presence: F32 = np.zeros(rows, np.float32)
        self.frequency: F32 = np.zeros(rows, np.float32)
        self.seed: NDArray[np.uint64] = np.zeros(rows, np.uint64)
        self.choice: I32 = np.zeros(rows, np.int32)
        self.num_prompt: I32 = np.zeros(rows, np.int32)
        self.top_logprobs: I32 = np.full(rows, -1, np.int32)

    def set(self, row: int, new: NewSequence) -> bool:
        """Fill one row; True if its penalties need the history of token ids."""
        sampling = new.sampling
        self.temperature[row] = sampling.temperature
        self.top_k[row] = max(0, min(sampling.top_k, 2**31 - 1))
        self.top_p[row] = sampling.top_p
        self.min_p[row] = sampling.min_p
        self.repetition[row] = sampling.repetition_penalty
        self.presence[row] = sampling.presence_penalty
        self.frequency[row] = sampling.frequency_penalty
        self.seed[row] = new.seed & _SEED_MASK
        self.choice[row] = new.choice
        self.num_prompt[row] = new.num_prompt
        self.top_logprobs[row] = -1 if sampling.logprobs is None else sampling.logprobs
        return sampling.repetition_penalty != 1 or sampling.presence_penalty != 0 or sampling.frequency_penalty != 0

    def grow(self) -> None:
        """Double the rows."""
        for name, values in vars(self).items():
            setattr(self, name, np.concatenate([values, np.zeros_like(values)]))
