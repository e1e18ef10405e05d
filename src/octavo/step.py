"""The contract between scheduler and worker: what one step computes, and what came out of it.

Plain values only (msgspec structs), so that a plan can cross a process border unchanged. The worker keeps what it was told:
a sequence's token ids and block table travel once, later steps send only what is new.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from octavo.pooling_params import PoolingKind
from octavo.sampling_params import SamplingParams


class NewSequence(msgspec.Struct):
    """Everything the worker must know of a sequence it has not got (first time, or again after preemption).

    token_ids   prompt then output tokens so far
    num_prompt  how many of token_ids are prompt; fixed for the life of the sequence
    choice      the choice index within its request; part of the noise key
    seed        resolved seed, never None
    """

    token_ids: list[int]
    num_prompt: int
    choice: int
    seed: int
    sampling: SamplingParams
    stop_token_ids: list[int]
    """Masked before min_tokens outputs exist: the model's end-of-sequence ids (unless ignore_eos) and the request's."""
    grammar: str = ""
    """What the output is held to (see grammar.source); "" is nothing."""
    pooling: PoolingKind | None = None
    """Set: no token is sampled. The step that computes the last one of token_ids returns what the hidden states come to."""


class ShareKind(enum.IntEnum):
    """What a share of a step is.

    PREFILL  tokens of a prompt, or of a sequence that is computed again
    DECODE   the last token of a sequence, or those that it gained in its last step, and drafts of those that follow
    """

    PREFILL = 0
    DECODE = 1


class ScheduledSequence(msgspec.Struct):
    """One sequence's share of a step: compute positions [num_computed, num_computed + num_new).

    token_ids are appended to the worker's history of the sequence: tokens that are known by now and that no plan has told it,
    whoever chose them. It has all of them already when `new` is set.
    draft_token_ids are guesses of the tokens behind the last known one; the last positions of the share are theirs. Only a
    share that samples has any. A guess is accepted if it is what is sampled at its position, and if all before it are.

    new_block_ids are appended to the worker's block table of the sequence (the whole table when `new` is set).
    replaced_blocks are (index in the table, new block id) pairs: copy on write gave the sequence its own copy.
    needs_sample: the share reaches the last known token, so its logits choose the next one; never of one that is pooled.
    """

    seq_id: int
    kind: ShareKind
    num_computed: int
    num_new: int
    new_block_ids: list[int]
    needs_sample: bool
    token_ids: list[int] = []
    new: NewSequence | None = None
    replaced_blocks: list[tuple[int, int]] = []
    draft_token_ids: list[int] = []


class StepPlan(msgspec.Struct):
    """One step: moves to the swap space, moves from it, block copies, then the forward pass over all shares, then sampling.

    Plans run in the order of their step_id. Sequences stand decodes first, then prefills. removed are ids the worker may forget
    (finished, aborted, preempted) and is applied before anything else; an id in it may be unknown, or come again as new in the
    same plan.
    block_copies are (source, target) pairs and may run in any order: targets are distinct and none is a source. A plan may have
    no sequences.
    swap_out and swap_in are (block, slot) pairs. Those of one list may run in any order; all of swap_out come before the first
    of swap_in, for a block that was moved out may be filled anew in the same step, from a slot filled in the same step.
    """

    step_id: int
    sequences: list[ScheduledSequence]
    block_copies: list[tuple[int, int]] = []
    removed: list[int] = []
    swap_out: list[tuple[int, int]] = []
    swap_in: list[tuple[int, int]] = []

    @property
    def num_tokens(self) -> int:
        return sum(s.num_new for s in self.sequences)


class TokenLogprobs(msgspec.Struct):
    """Log-softmax of the raw logits at one position: the chosen token, its rank (1 = most likely), and the top alternatives."""

    token_id: int
    logprob: float
    rank: int
    top_ids: list[int]
    top_logprobs: list[float]


class SampledTokens(msgspec.Struct):
    """The tokens a sequence gained in this step: the drafts that were accepted, then the one that was sampled behind them.

    Tokens that nothing but those can follow (a grammar says so) may stand behind them; a later share computes them.

    logprobs      one entry per token if asked for, else empty
    num_accepted  how many of the tokens are drafts of the share: their keys and values are in the cache
    """

    seq_id: int
    token_ids: list[int]
    logprobs: list[TokenLogprobs] = []
    num_accepted: int = 0


class PromptLogprobs(msgspec.Struct):
    """Logprobs of prompt positions first_position, first_position + 1, ... (each of the token AT that position)."""

    seq_id: int
    first_position: int
    entries: list[TokenLogprobs]


class PooledVector(msgspec.Struct):
    """What the hidden states of a whole prompt come to: float32 [hidden_size], as little-endian bytes."""

    seq_id: int
    data: bytes


class SwapReport(msgspec.Struct):
    """What a step's moves took, and which of them did not succeed.

    lost_slots   slot that could not be written, to the reason
    lost_blocks  block that could not be filled, to the reason
    not_run      sequences of the plan that need such a block: nothing was computed for them, the worker has forgotten them
    """

    out_bytes: int = 0
    out_s: float = 0.0
    in_bytes: int = 0
    in_s: float = 0.0
    lost_slots: dict[int, str] = {}
    lost_blocks: dict[int, str] = {}
    not_run: list[int] = []


class StepResult(msgspec.Struct):
    """What one step produced. `failed` maps a sequence id to the reason its own handling raised; others are unaffected.

    swap  set when the plan had moves
    """

    step_id: int
    sampled: list[SampledTokens]
    prompt_logprobs: list[PromptLogprobs] = []
    failed: dict[int, str] = {}
    swap: SwapReport | None = None
    pooled: list[PooledVector] = []


TokenRun: TypeAlias = tuple[int, int, int]
"""(source slot, target slot, number of tokens): tokens that stand side by side within one block, before and after."""


class Relayout(msgspec.Struct):
    """New sizes of the KV cache and of a step, between two steps. The worker honours all of it or raises and stays as it was.

    moves   tokens of the old cache and where they go in the new one; all targets are distinct. What is not moved is lost.
            None: block_size and num_blocks are as before and the cache stays where it is
    tables  block table of each sequence that keeps its blocks; the worker forgets every other sequence
    num_swap_blocks   blocks of the new size that the swap space has room for
    swap_moves        (slot, slot) pairs: contents that move within the swap space, before slots from num_swap_blocks on go. No
                      target is a source. With another block size, or other num_blocks, nothing in it is kept
    """

    block_size: int
    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    moves: list[TokenRun] | None
    tables: dict[int, list[int]]
    num_swap_blocks: int = 0
    swap_moves: list[tuple[int, int]] = []


class RelayoutResult(msgspec.Struct):
    """What the worker did beyond what it was told.

    lost_slots    targets of swap_moves that could not be written, to the reason
    swap_block_s  seconds to move a block out and back, measured where there was no swap space before
    """

    lost_slots: dict[int, str] = {}
    swap_block_s: float | None = None
