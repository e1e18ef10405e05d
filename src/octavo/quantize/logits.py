"""LogitsRunner: the logits of every scored position of a window, slice by slice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from octavo.config.engine import EngineConfig
from octavo.loader.checkpoint import Checkpoint
from octavo.ops.arrays import F32
from octavo.ops.interface import StepInputs
from octavo.quantize.windows import Window
from octavo.worker.program import load_and_resolve

_MAX_LOGITS_BYTES = 64 << 20
"""Logits computed at a time: a vocabulary of 262,144 gets slices of 64 positions."""


def slice_rows(vocab_size: int, chunked_prefill_size: int) -> int:
    """Positions computed at a time."""
    return max(1, min(chunked_prefill_size, _MAX_LOGITS_BYTES // (4 * vocab_size)))


class LogitsRunner:
    """One model on one device, computing one window at a time.

    config   its loading, cache and backend sections decide the path that is measured
    context  longest window
    Raises: LoadError and ConfigError as a worker does.
    """

    def __init__(self, config: EngineConfig, checkpoint: Checkpoint, context: int) -> None:
        self._rows = slice_rows(checkpoint.config.vocab_size, config.scheduler.chunked_prefill_size)
        scheduler = replace(
            config.scheduler,
            max_num_seqs=1,
            max_num_batched_tokens=self._rows,
            chunked_prefill_size=self._rows,
            max_model_len=context,
        )
        loaded, resolved = load_and_resolve(replace(config, scheduler=scheduler), checkpoint)
        loaded.allocate(resolved.config, self._rows)
        self._block_size = resolved.config.cache.block_size
        self.backend, self._program = loaded.backend, loaded.program
        num_blocks = -(-context // self._block_size)
        self._block_table = np.arange(num_blocks, dtype=np.int32).reshape(1, -1)

    def run(self, window: Window) -> Iterator[tuple[int, F32]]:
        """(first, logits [rows, vocab]) of the positions first.. that predict the window's scored tokens, in order: the logits
        of position p speak of token p + 1. They are valid until the next ones are asked for."""
        ids = np.array(window.token_ids, np.int32)
        predicting = window.first_scored - 1
        last = len(ids) - 1  # the last token predicts nothing that is known
        for start in range(0, last, self._rows):
            end = min(start + self._rows, last)
            wanted = max(start, predicting)
            logits = self._program.run(self._inputs(ids, start, end, wanted))
            if wanted < end:
                yield wanted, self.backend.read_logits(logits)

    def _inputs(self, ids: np.ndarray[tuple[int], np.dtype[np.int32]], start: int, end: int, wanted: int) -> StepInputs:
        """The step that computes positions start..end-1 and returns the logits of those from `wanted` on."""
        positions = np.arange(start, end, dtype=np.int32)
        width = -(-end // self._block_size)
        return StepInputs(
            token_ids=ids[start:end],
            positions=positions,
            slot_mapping=positions,  # block i of the cache is block i of the sequence
            query_start=np.array([0, end - start], np.int32),
            first_position=np.array([start], np.int32),
            block_tables=np.ascontiguousarray(self._block_table[:, :width]),
            logit_rows=np.arange(min(wanted, end) - start, end - start, dtype=np.int32),
        )
