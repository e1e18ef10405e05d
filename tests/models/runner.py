"""Running a checkpoint on any backend in tests, with the logits in sight: what the worker does, without a scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tests.checkpoints import open_checkpoint

from octavo.models.registry import load_model
from octavo.models.source import LoadedParameters
from octavo.ops.arrays import F32
from octavo.ops.interface import KVCacheSpec
from octavo.ops.registry import make_backend
from octavo.sampling_params import SamplingParams
from octavo.step import NewSequence, ScheduledSequence, ShareKind
from octavo.worker.batch import Batch, Segment

BLOCK_SIZE = 16


class Runner:
    """One loaded model and the sequences that are fed to it. Blocks of sequences are interleaved, so that tables matter."""

    def __init__(
        self, path: Path, device: str, *, max_model_len: int, max_seqs: int = 1, dtype: str = "float32", chunk: int = 256
    ) -> None:
        checkpoint = open_checkpoint(path)
        config = checkpoint.config
        longest_short_prompt = config.rope.longest_short_prompt(max_model_len)
        self._backend = make_backend(device, num_threads=2, isa="auto", dtype=dtype, quantization="none")
        model = load_model(config, LoadedParameters(checkpoint.tensors, self._backend.parameters))
        self._max_seqs, self._chunk = max_seqs, max(chunk, max_seqs)
        self._blocks_per_seq = -(-max_model_len // BLOCK_SIZE)
        num_blocks = self._blocks_per_seq * max_seqs
        self._backend.allocate_kv_cache(
            KVCacheSpec(config.num_layers, num_blocks, config.num_kv_heads, BLOCK_SIZE, config.head_dim, "float32")
        )
        self._program = self._backend.compile(
            model,
            max_tokens=self._chunk,
            max_logits=self._chunk,
            max_position=max_model_len * (1 if longest_short_prompt is None else 2),
            eager=False,
        )
        self._batch = Batch(
            max_seqs=max_seqs,
            max_tokens=self._chunk,
            max_logits=self._chunk,
            max_model_len=max_model_len,
            block_size=BLOCK_SIZE,
            num_blocks=num_blocks,
            vocab_size=config.vocab_size,
            longest_short_prompt=longest_short_prompt,
        )

    def add(self, seq_id: int, token_ids: list[int]) -> None:
        """Make a sequence known under an id below max_seqs."""
        new = NewSequence(token_ids, len(token_ids), 0, 0, SamplingParams(temperature=0.0), [])
        blocks = [seq_id + self._max_seqs * index for index in range(self._blocks_per_seq)]
        self._batch.update(ScheduledSequence(seq_id, ShareKind.PREFILL, 0, len(token_ids), blocks, True, new=new))

    def prefill(self, seq_id: int, length: int, rows: list[int]) -> F32:
        """Compute positions 0..length-1 in chunks; logits of the given rising rows, float32 [len(rows), vocab_size]."""
        logits: list[F32] = []
        for first in range(0, length, self._chunk):
            last = min(first + self._chunk, length)
            inputs = self._batch.step_inputs([self._share(seq_id, first, last - first)])
            inputs.logit_rows = np.array([row - first for row in rows if first <= row < last], np.int32)
            if inputs.logit_rows.size:
                logits.append(self._backend.read_logits(self._program.run(inputs)).copy())
            else:
                inputs.logit_rows = np.array([last - first - 1], np.int32)
                self._program.run(inputs)
        return np.concatenate(logits)

    def greedy(self, firsts: dict[int, int], count: int) -> dict[int, list[int]]:
        """Append each sequence's first new token, then decode all of them together until each has count new tokens."""
        tokens = {seq_id: [token] for seq_id, token in firsts.items()}
        for _ in range(count - 1):
            shares = []
            for seq_id, known in tokens.items():
                share = self._share(seq_id, 0, 1, known[-1:])
                share.first = share.state.num_tokens - 1
                shares.append(share)
            logits = self._backend.read_logits(self._program.run(self._batch.step_inputs(shares)))
            chosen = logits.argmax(axis=1)
            for seq_id, token in zip(tokens, chosen, strict=True):
                tokens[seq_id].append(int(token))
        return tokens

    def _share(self, seq_id: int, first: int, num_new: int, token_ids: Sequence[int] = ()) -> Segment:
        state = self._batch.update(ScheduledSequence(seq_id, ShareKind.PREFILL, 0, 1, [], False, list(token_ids)))
        return Segment(state, first, num_new, True, 0)
