"""Batch: what the worker knows of every sequence, in arrays that persist from step to step, and a step's inputs cut from them.

Each resident sequence has a row (not to be confused with the rows of a step, which are tokens):

    token_ids     [rows, max_model_len]       prompt, then outputs; num_tokens says how many
    block_tables  [rows, max_blocks]          block ids by position // block_size; num_blocks says how many
    settings      one array per sampling field, [rows]

A step gathers from them with whole-array operations; Python loops run over sequences at most, never over tokens. What is read
one sequence at a time (num_tokens, num_blocks) stands in ResidentSequence: a number taken out of an array costs five of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.config.cache import blocks_for
from octavo.grammar.matcher import GrammarMatcher, mask_of
from octavo.ops.arrays import I32
from octavo.ops.interface import StepInputs
from octavo.sampling_params import SamplingParams
from octavo.step import NewSequence, Relayout, ScheduledSequence
from octavo.worker.pooling import Pooler
from octavo.worker.settings import SettingsTable


@dataclass(slots=True, eq=False)
class ResidentSequence:
    """The parts of a sequence that are no arrays. Each stay in the batch has one of its own, equal to itself alone.

    masked_ids    ids masked while there are fewer than min_tokens outputs, int32
    has_history   penalties are on, so that the sampler needs the token ids
    rope_shift    rows of the table of angles between position 0 and the row of the sequence's first token
    matcher       holds the output to a grammar; None: it is free
    pooler        takes its hidden states; None: tokens are sampled
    allowed       the mask of allowed_token_ids, int32 [words]; None: all may be chosen
    has_bias      logit_bias, bad_words or min_tokens are set, so that the sampler may have to add to its logits
    """

    seq_id: int
    row: int
    num_prompt: int
    sampling: SamplingParams
    masked_ids: I32
    has_history: bool
    has_bias: bool
    num_tokens: int
    rope_shift: int = 0
    num_blocks: int = 0
    matcher: GrammarMatcher | None = None
    pooler: Pooler | None = None
    allowed: I32 | None = None

    @property
    def has_mask(self) -> bool:
        return self.matcher is not None or self.allowed is not None


@dataclass(slots=True)
class Segment:
    """Part of a sequence computed by one forward pass: positions [first, first + num_new).

    needs_sample        the logits of the last position choose the next token
    prompt_logit_rows   how many of the first positions' logits are wanted for prompt logprobs
    num_drafts          how many of the last positions hold guesses, to be verified: their logits, and those before, are wanted
    """

    state: ResidentSequence
    first: int
    num_new: int
    needs_sample: bool
    prompt_logit_rows: int
    num_drafts: int = 0

    @property
    def extra_logit_rows(self) -> int:
        """Rows of logits beside the one that a sequence needs to go on."""
        return self.prompt_logit_rows + self.num_drafts


class Batch:
    """The worker's sequences.

    max_seqs       sequences it starts with room for; more make it grow
    max_tokens     most tokens of one forward pass
    max_logits     most rows of logits of one forward pass
    max_model_len  longest sequence, prompt and output
    num_blocks     blocks of the KV cache; ids are below it
    longest_short_prompt  of a table of angles with two halves: longer prompts read the second (RopeConfig); None: one whole
    """

    def __init__(
        self,
        *,
        max_seqs: int,
        max_tokens: int,
        max_logits: int,
        max_model_len: int,
        block_size: int,
        num_blocks: int,
        vocab_size: int,
        longest_short_prompt: int | None = None,
    ) -> None:
        self.max_tokens = max_tokens
        self.max_logits = max_logits
        self.max_model_len = max_model_len
        self.block_size = block_size
        self.vocab_size = vocab_size
        self._longest_short_prompt = longest_short_prompt
        self._num_kv_blocks = num_blocks
        self._max_blocks = blocks_for(max_model_len, block_size)
        self._states: dict[int, ResidentSequence] = {}
        self._free_rows = list(range(max_seqs))[::-1]
        # zeros, not empty: the system hands out untouched pages, so a row costs memory only as far as it is filled.
        self.token_ids: I32 = np.zeros((max_seqs, max_model_len), np.int32)
        self.block_tables: I32 = np.zeros((max_seqs, self._max_blocks), np.int32)
        self.settings = SettingsTable(max_seqs)
        self._inputs = _input_buffers(max_seqs, max_tokens, max_logits, self._max_blocks)
        self._counting = _counting(max_seqs, max_tokens)

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, seq_id: int) -> bool:
        return seq_id in self._states

    def remove(self, seq_id: int) -> None:
        """Forget a sequence; an unknown id is fine (it may have failed before it was added)."""
        state = self._states.pop(seq_id, None)
        if state is not None:
            self._free_rows.append(state.row)

    def update(self, scheduled: ScheduledSequence) -> ResidentSequence:
        """Take in what a plan says of one sequence: itself if new, its new tokens, its new and replaced blocks.

        Raises: ValueError if the plan contradicts what is known; the sequence is then to be removed.
        """
        if scheduled.new is not None:
            self.remove(scheduled.seq_id)
            self._add(scheduled.seq_id, scheduled.new)
        state = self._states.get(scheduled.seq_id)
        if state is None:
            raise ValueError(f"sequence {scheduled.seq_id} was scheduled but never introduced")
        if scheduled.token_ids:
            self._write(state, scheduled.token_ids)
            state.num_tokens += len(scheduled.token_ids)
        if scheduled.draft_token_ids:
            self._write(state, scheduled.draft_token_ids)
        if scheduled.new_block_ids or scheduled.replaced_blocks:
            self._update_blocks(state, scheduled)
        end, covered = scheduled.num_computed + scheduled.num_new, state.num_blocks * self.block_size
        num_known = state.num_tokens + len(scheduled.draft_token_ids)
        if scheduled.num_new < 1 or scheduled.num_computed < 0 or end > num_known or end > covered:
            raise ValueError(
                f"positions {scheduled.num_computed} to {end} were scheduled; {num_known} tokens are known, "
                f"blocks cover {covered}"
            )
        if scheduled.needs_sample and end != num_known:
            raise ValueError(f"a sample was asked for behind position {end}; {num_known} tokens are known")
        if scheduled.needs_sample and state.pooler is not None:
            raise ValueError("a sample was asked for of a sequence that is pooled")
        if scheduled.draft_token_ids and not (scheduled.needs_sample and len(scheduled.draft_token_ids) < scheduled.num_new):
            raise ValueError("drafts were scheduled without the token before them, or without a sample")
        return state

    def relay(self, relayout: Relayout, max_logits: int) -> None:
        """Take new sizes and new block tables; sequences without a table in the relayout are forgotten. All or nothing.

        Raises: ValueError if a table has more blocks than a sequence may have or names one that does not exist.
        """
        max_blocks = blocks_for(self.max_model_len, relayout.block_size)
        inputs = _input_buffers(relayout.max_num_seqs, relayout.max_num_batched_tokens, max_logits, max_blocks)
        tables = np.zeros((len(self.token_ids), max_blocks), np.int32)
        for seq_id, table in relayout.tables.items():
            if len(table) > max_blocks or not all(0 <= block < relayout.num_blocks for block in table):
                raise ValueError(f"the block table of sequence {seq_id} does not fit {relayout.num_blocks} blocks")
            tables[self._states[seq_id].row, : len(table)] = table
        self.max_tokens, self.max_logits = relayout.max_num_batched_tokens, max_logits
        self.block_size, self._num_kv_blocks, self._max_blocks = relayout.block_size, relayout.num_blocks, max_blocks
        self._inputs, self.block_tables = inputs, tables
        self._counting = _counting(relayout.max_num_seqs, relayout.max_num_batched_tokens)
        for seq_id, table in relayout.tables.items():
            self._states[seq_id].num_blocks = len(table)
        for seq_id in self._states.keys() - relayout.tables.keys():
            self.remove(seq_id)

    def blocks(self, state: ResidentSequence) -> I32:
        """The block table, a view int32 [num_blocks]."""
        return self.block_tables[state.row, : state.num_blocks]

    def history(self, state: ResidentSequence) -> I32:
        """Prompt and output token ids so far, a view int32 [num_tokens]. What stands behind them are the drafts of the step."""
        return self.token_ids[state.row, : state.num_tokens]

    def drafts(self, state: ResidentSequence, count: int) -> list[int]:
        """The first `count` drafts of the step."""
        drafts: list[int] = self.token_ids[state.row, state.num_tokens : state.num_tokens + count].tolist()
        return drafts

    def step_inputs(self, shares: Sequence[Segment]) -> StepInputs:
        """The arrays of one forward pass, views into buffers that the next call overwrites.

        Logit rows stand share by share: first those for prompt logprobs, then those to sample from.
        """
        if all(share.num_new == 1 and share.needs_sample and not share.prompt_logit_rows for share in shares):
            return self._decode_inputs(shares)
        count = len(shares)
        rows = np.array([share.state.row for share in shares], np.int64)
        num_new = np.array([share.num_new for share in shares], np.int32)
        buffers = self._inputs
        first, query_start = buffers.first_position[:count], buffers.query_start[: count + 1]
        first[:] = [share.first for share in shares]
        np.cumsum(num_new, out=query_start[1:])
        total = int(query_start[count])
        positions = buffers.positions[:total]
        # Position of a token = its row in the step, less its share's first row, plus its share's first position.
        np.add(self._counting[:total], np.repeat(first - query_start[:-1], num_new), out=positions)
        token_rows = np.repeat(rows, num_new)
        token_ids, slots = buffers.token_ids[:total], buffers.slot_mapping[:total]
        token_ids[:] = self.token_ids[token_rows, positions]
        blocks, offsets = np.divmod(positions, self.block_size)
        slots[:] = self.block_tables[token_rows, blocks] * self.block_size + offsets
        tables = self._tables_of(rows, int((first + num_new).max()))
        if self._longest_short_prompt is not None:
            positions += np.repeat(np.array([share.state.rope_shift for share in shares], np.int32), num_new)
        return StepInputs(token_ids, positions, slots, query_start, first, tables, self._logit_rows(shares, query_start))

    def _decode_inputs(self, shares: Sequence[Segment]) -> StepInputs:
        """The same for a step of decodes, where a share is a row. After a forward pass no cache holds any of this code: a loop
        over the sequences takes half the time of the whole-array operations above, up to 32 of them at least."""
        count, size = len(shares), self.block_size
        token_at, block_at = self.token_ids.item, self.block_tables.item
        rows: list[int] = []
        positions: list[int] = []
        token_ids: list[int] = []
        slots: list[int] = []
        for share in shares:
            row, position = share.state.row, share.first
            rows.append(row)
            positions.append(position)
            token_ids.append(token_at(row, position))
            slots.append(block_at(row, position // size) * size + position % size)
        buffers = self._inputs
        first = buffers.first_position[:count]
        first[:], buffers.token_ids[:count], buffers.slot_mapping[:count] = positions, token_ids, slots
        tables = self._tables_of(rows, max(positions) + 1)
        counting = self._counting
        angles = first
        if self._longest_short_prompt is not None:
            angles = buffers.positions[:count]
            np.add(first, [share.state.rope_shift for share in shares], out=angles, casting="unsafe")
        return StepInputs(
            buffers.token_ids[:count],
            angles,
            buffers.slot_mapping[:count],
            counting[: count + 1],
            first,
            tables,
            counting[:count],
        )

    def _tables_of(self, rows: Sequence[int] | NDArray[np.int64], num_tokens: int) -> I32:
        """The block tables of these rows, as far as num_tokens need them."""
        width = blocks_for(num_tokens, self.block_size)
        tables = self._inputs.block_tables.reshape(-1)[: len(rows) * width].reshape(len(rows), width)
        return np.take(self.block_tables[:, :width], rows, axis=0, out=tables)

    def _logit_rows(self, shares: Sequence[Segment], query_start: I32) -> I32:
        """Rows of the step whose logits are wanted, in share order."""
        out, end = self._inputs.logit_rows, 0
        for index, share in enumerate(shares):
            if share.prompt_logit_rows:
                start = int(query_start[index])
                out[end : end + share.prompt_logit_rows] = np.arange(start, start + share.prompt_logit_rows)
                end += share.prompt_logit_rows
            if share.needs_sample:
                last, count = int(query_start[index + 1]), share.num_drafts + 1
                out[end : end + count] = range(last - count, last)
                end += count
        return out[:end]

    def _add(self, seq_id: int, new: NewSequence) -> None:
        if not 0 < len(new.token_ids) <= self.max_model_len:
            raise ValueError(f"{len(new.token_ids)} tokens do not fit max_model_len {self.max_model_len}")
        token_ids = np.array(new.token_ids, np.int32)
        if token_ids.min() < 0 or token_ids.max() >= self.vocab_size:
            raise ValueError(f"token ids reach from {token_ids.min()} to {token_ids.max()}, vocab_size is {self.vocab_size}")
        masked = sorted({token for token in new.stop_token_ids if 0 <= token < self.vocab_size})
        if not self._free_rows:
            self._grow()
        row, allowed = self._free_rows[-1], new.sampling.allowed_token_ids
        has_history = self.settings.set(row, new)
        self._free_rows.pop()
        self.token_ids[row, : token_ids.size] = token_ids
        self._states[seq_id] = ResidentSequence(
            seq_id,
            row,
            new.num_prompt,
            new.sampling,
            masked_ids=np.array(masked, np.int32),
            has_history=has_history,
            has_bias=bool(new.sampling.logit_bias or new.sampling.bad_words_ids) or new.sampling.min_tokens > 0,
            num_tokens=token_ids.size,
            rope_shift=self._rope_shift(new.num_prompt),
            pooler=None if new.pooling is None else Pooler(new.pooling),
            allowed=None if allowed is None else mask_of(allowed, self.vocab_size),
        )

    def _rope_shift(self, num_prompt: int) -> int:
        is_long = self._longest_short_prompt is not None and num_prompt > self._longest_short_prompt
        return self.max_model_len if is_long else 0

    def _write(self, state: ResidentSequence, token_ids: list[int]) -> None:
        """Put token ids behind the known ones."""
        start, end = state.num_tokens, state.num_tokens + len(token_ids)
        if end > self.max_model_len:
            raise ValueError(f"{end} tokens do not fit max_model_len {self.max_model_len}")
        if min(token_ids) < 0 or max(token_ids) >= self.vocab_size:
            raise ValueError(f"token ids {token_ids} were scheduled, vocab_size is {self.vocab_size}")
        self.token_ids[state.row, start:end] = token_ids

    def _update_blocks(self, state: ResidentSequence, scheduled: ScheduledSequence) -> None:
        table, start = self.block_tables[state.row], state.num_blocks
        end = start + len(scheduled.new_block_ids)
        if end > self._max_blocks:
            raise ValueError(f"{end} blocks were given; max_model_len {self.max_model_len} needs {self._max_blocks} at most")
        ids = [*scheduled.new_block_ids, *(block for _, block in scheduled.replaced_blocks)]
        if ids and not 0 <= min(ids) <= max(ids) < self._num_kv_blocks:
            raise ValueError(f"block ids reach from {min(ids)} to {max(ids)}; the cache has {self._num_kv_blocks}")
        table[start:end] = scheduled.new_block_ids
        state.num_blocks = end
        for index, block in scheduled.replaced_blocks:
            if not 0 <= index < end:
                raise ValueError(f"block {index} was replaced; the table has {end}")
            table[index] = block

    def _grow(self) -> None:
        """Double the rows."""
        count = len(self.token_ids)
        self.token_ids = np.concatenate([self.token_ids, np.zeros_like(self.token_ids)])
        self.block_tables = np.concatenate([self.block_tables, np.zeros_like(self.block_tables)])
        self.settings.grow()
        self._free_rows.extend(range(2 * count - 1, count - 1, -1))


def _counting(max_seqs: int, max_tokens: int) -> I32:
    """0, 1, 2, ... as far as a step may have to count its rows or its shares."""
    return np.arange(max(max_seqs, max_tokens) + 1, dtype=np.int32)


def _input_buffers(max_seqs: int, max_tokens: int, max_logits: int, max_blocks: int) -> StepInputs:
    """Room for the largest step."""
    return StepInputs(
        token_ids=np.zeros(max_tokens, np.int32),
        positions=np.zeros(max_tokens, np.int32),
        slot_mapping=np.zeros(max_tokens, np.int32),
        query_start=np.zeros(max_seqs + 1, np.int32),
        first_position=np.zeros(max_seqs, np.int32),
        block_tables=np.zeros((max_seqs, max_blocks), np.int32),
        logit_rows=np.zeros(max_logits, np.int32),
    )
