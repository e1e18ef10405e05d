"""Worker: one device's model, KV cache and sequences; step plans in, step results out."""

from __future__ import annotations

import msgspec

from octavo.config.resolved import ResolvedConfig
from octavo.ops.interface import Program
from octavo.ops.registry import AnyBackend
from octavo.step import Relayout, RelayoutResult, ScheduledSequence, StepPlan, StepResult, SwapReport
from octavo.worker.batch import Batch, Segment
from octavo.worker.memory import kv_block_bytes
from octavo.worker.model_runner import PROMPT_LOGIT_ROWS, ModelRunner
from octavo.worker.program import LoadedModel
from octavo.worker.swap_store import SwapStore
from octavo.worker.swapper import Swapper


class Worker:
    """Reserves memory beside a model's parameters and executes plans.

    config       resolved, with the memory that the parameters of `loaded` leave
    Raises: ConfigError for memory that cannot be had.
    """

    def __init__(self, config: ResolvedConfig, loaded: LoadedModel) -> None:
        scheduler, num_blocks = config.scheduler, config.cache.num_blocks
        max_logits = _max_logits(scheduler.max_num_seqs)
        self._loaded = loaded
        loaded.allocate(config, max_logits)
        self.batch = Batch(
            max_seqs=scheduler.max_num_seqs,
            max_tokens=scheduler.max_num_batched_tokens,
            max_logits=max_logits,
            max_model_len=scheduler.max_model_len,
            block_size=config.cache.block_size,
            num_blocks=num_blocks,
            vocab_size=loaded.config.vocab_size,
            longest_short_prompt=loaded.longest_short_prompt,
        )
        self._runner = ModelRunner(self.backend, self._loaded.program, self.batch)
        block_bytes = kv_block_bytes(loaded.config, config.cache.block_size, config.cache.kv_cache_dtype)
        space = SwapStore(self.backend, block_bytes, config.cache.swap_path, config.backend.num_threads)
        self._swapper = Swapper(space, config.cache.block_size)
        self._num_slots = num_slots = config.cache.num_swap_blocks
        self._swapper.reserve(num_slots, config.cache.block_size)
        self.swap_block_s = self._swapper.measure(num_blocks, num_slots)
        """Seconds to move a block to the swap space and back; None without one."""

    @property
    def backend(self) -> AnyBackend:
        return self._loaded.backend

    @property
    def program(self) -> Program[object]:
        """The program in force; `reconfigure` replaces it."""
        return self._loaded.program

    def execute(self, plan: StepPlan) -> StepResult:
        """Run one step: forget, take in, move blocks out, move blocks in, copy blocks, compute, sample.

        A sequence whose own handling raises is forgotten and reported in `failed`. An error of the forward pass itself concerns
        the whole step and is raised.
        """
        for seq_id in plan.removed:
            self.batch.remove(seq_id)
        failed: dict[int, str] = {}
        shares: list[Segment] = []
        for scheduled in plan.sequences:
            try:
                shares.append(self._share(scheduled))
            except Exception as error:  # whatever it is, it must end this sequence and no other
                failed[scheduled.seq_id] = f"the step could not be prepared: {error}"
        report = self._swapper.run(plan)
        not_run: list[int] = []
        if self._swapper.lost_blocks:
            lost = self._swapper.lost_blocks
            not_run = [share.state.seq_id for share in shares if lost & set(self.batch.blocks(share.state).tolist())]
            shares = [share for share in shares if share.state.seq_id not in not_run]
            report = msgspec.structs.replace(report or SwapReport(), not_run=not_run)
        if plan.block_copies:
            self.backend.copy_blocks(plan.block_copies)
        sampled, prompt_logprobs = self._runner.run(shares, failed)
        for seq_id in (*failed, *not_run):
            self.batch.remove(seq_id)
        return StepResult(plan.step_id, sampled, prompt_logprobs, failed, report)

    def reconfigure(self, relayout: Relayout) -> RelayoutResult:
        """Take new sizes between two steps: another KV cache with the tokens moved there, another program, another swap space.

        Raises: ConfigError when the memory, or room for the swap file, cannot be had; all is as it was then. While the tokens
        move, both caches exist, but the old one gives its memory back layer by layer.
        """
        num_slots, max_logits = relayout.num_swap_blocks, _max_logits(relayout.max_num_seqs)
        self._swapper.reserve(num_slots, relayout.block_size)  # more room than the books know of does no harm if the rest fails
        sizes = relayout.max_num_batched_tokens, max_logits
        if relayout.moves is not None or sizes != (self.batch.max_tokens, self.batch.max_logits):
            with self._loaded.resizing(relayout, max_logits):
                self.batch.relay(relayout, max_logits)
            self._runner = ModelRunner(self.backend, self._loaded.program, self.batch)
        lost_slots = self._swapper.relay(relayout)
        is_new, self._num_slots = num_slots > 0 and not self._num_slots, num_slots
        return RelayoutResult(lost_slots, self._swapper.measure(relayout.num_blocks, num_slots) if is_new else None)

    def _share(self, scheduled: ScheduledSequence) -> Segment:
        """Take in one sequence's part of the plan; see Batch.update for what it raises."""
        state = self.batch.update(scheduled)
        first, end = scheduled.num_computed, scheduled.num_computed + scheduled.num_new
        prompt_rows = 0
        if state.sampling.prompt_logprobs is not None:
            # The logits of a position speak of the next one, so the last prompt position has none of them to give.
            prompt_rows = max(0, min(end, state.num_prompt - 1) - first)
        return Segment(state, first, scheduled.num_new, scheduled.needs_sample, prompt_rows)


def _max_logits(max_num_seqs: int) -> int:
    """Most rows of logits of one forward pass: one to sample from per sequence, and those for prompt logprobs."""
    return max_num_seqs + PROMPT_LOGIT_ROWS
