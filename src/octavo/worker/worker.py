"""Worker: one device's model, KV cache and sequences; step plans in, step results out."""

from __future__ import annotations

from collections import deque

import msgspec

from octavo.config.resolved import ResolvedConfig
from octavo.grammar.compiler import GrammarCompiler
from octavo.ops.interface import Program
from octavo.ops.registry import AnyBackend
from octavo.step import Relayout, RelayoutResult, ScheduledSequence, StepPlan, StepResult, SwapReport
from octavo.worker.batch import Batch, Segment
from octavo.worker.launcher import InlineLauncher, Launcher, ThreadLauncher
from octavo.worker.masks import num_allowed
from octavo.worker.memory import kv_block_bytes
from octavo.worker.model_runner import EXTRA_LOGIT_ROWS, ModelRunner
from octavo.worker.program import LoadedModel
from octavo.worker.swap_store import SwapStore
from octavo.worker.swapper import Swapper


class Worker:
    """Reserves memory beside a model's parameters and executes plans.

    config       resolved, with the memory that the parameters of `loaded` leave
    grammars     makes the matchers of sequences that have a grammar
    overlap      compute on a thread of its own, so that the caller goes on between `start` and `finish`
    forces_tokens  append what a grammar leaves no choice about without computing it first; the answers are the same
    Raises: ConfigError for memory that cannot be had.
    """

    def __init__(
        self,
        config: ResolvedConfig,
        loaded: LoadedModel,
        *,
        overlap: bool = False,
        grammars: GrammarCompiler | None = None,
        forces_tokens: bool = True,
    ) -> None:
        scheduler, num_blocks = config.scheduler, config.cache.num_blocks
        max_logits = _max_logits(scheduler.max_num_seqs)
        self._loaded = loaded
        self._grammars = grammars
        self._forces_tokens = forces_tokens
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
        self._launcher: Launcher[object] = ThreadLauncher() if overlap else InlineLauncher()
        self._runner = self._make_runner()
        block_bytes = kv_block_bytes(loaded.config, config.cache.block_size, config.cache.kv_cache_dtype)
        space = SwapStore(self.backend, block_bytes, config.cache.swap_path, config.backend.num_threads)
        self._swapper = Swapper(space, config.cache.block_size)
        self._plans: deque[StepPlan] = deque()
        """Plans that are not finished, oldest first; it is the only one that has begun."""
        self._result: StepResult
        """What is known of its result."""
        self._fault: Exception | None = None
        """What was raised before its logits."""
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

    def start(self, plan: StepPlan) -> None:
        """Take a plan: forget, take in, move blocks out, move blocks in, copy blocks, begin to compute.

        Behind plans that are not finished it waits for its turn. Raises nothing: `finish` does.
        """
        self._plans.append(plan)
        if len(self._plans) == 1:
            self._begin()

    def finish(self) -> StepResult:
        """Wait for the oldest plan, sample, and begin the next one.

        A sequence whose own handling raised is forgotten and reported in `failed`. An error of the forward pass itself concerns
        the whole step and is raised; the plans behind it are dropped then, and nothing of them has been done.
        """
        try:
            if self._fault is not None:
                raise self._fault
            self._runner.finish(self._result)
        except BaseException:
            self.drop()
            raise
        plan, result = self._plans.popleft(), self._result
        for seq_id in (*result.failed, *(result.swap.not_run if result.swap is not None else ())):
            self.batch.remove(seq_id)
        assert result.step_id == plan.step_id
        if self._plans:
            self._begin()
        return result

    def drop(self) -> None:
        """Forget the plans that were started. What one of them has done so far stays done."""
        self._launcher.drop()
        self._plans.clear()

    def _begin(self) -> None:
        """Do all of the oldest plan that comes before its logits."""
        plan, self._fault = self._plans[0], None
        self._result = result = StepResult(plan.step_id, [])
        try:
            for seq_id in plan.removed:
                self.batch.remove(seq_id)
            segments: list[Segment] = []
            for scheduled in plan.sequences:
                try:
                    segments.append(self._segment(scheduled))
                except Exception as error:  # whatever it is, it must end this sequence and no other
                    result.failed[scheduled.seq_id] = f"the step could not be prepared: {error}"
            result.swap = self._swapper.run(plan)
            lost = self._swapper.lost_blocks
            if lost:
                not_run = [s.state.seq_id for s in segments if lost & set(self.batch.blocks(s.state).tolist())]
                segments = [segment for segment in segments if segment.state.seq_id not in not_run]
                result.swap = msgspec.structs.replace(result.swap or SwapReport(), not_run=not_run)
            if plan.block_copies:
                self.backend.copy_blocks(plan.block_copies)
            self._runner.start(segments, result.failed)
        except Exception as fault:
            self._fault = fault

    def reconfigure(self, relayout: Relayout) -> RelayoutResult:
        """Take new sizes between two steps: another KV cache with the tokens moved there, another program, another swap space.

        Raises: ConfigError when the memory, or room for the swap file, cannot be had; all is as it was then. While the tokens
        move, both caches exist, but the old one gives its memory back layer by layer.
        """
        assert not self._plans, "the steps in flight must be finished first"
        num_slots, max_logits = relayout.num_swap_blocks, _max_logits(relayout.max_num_seqs)
        self._swapper.reserve(num_slots, relayout.block_size)  # more room than the books know of does no harm if the rest fails
        sizes = relayout.max_num_batched_tokens, max_logits
        if relayout.moves is not None or sizes != (self.batch.max_tokens, self.batch.max_logits):
            with self._loaded.resizing(relayout, max_logits):
                self.batch.relay(relayout, max_logits)
            self._runner = self._make_runner()
        lost_slots = self._swapper.relay(relayout)
        is_new, self._num_slots = num_slots > 0 and not self._num_slots, num_slots
        return RelayoutResult(lost_slots, self._swapper.measure(relayout.num_blocks, num_slots) if is_new else None)

    def _make_runner(self) -> ModelRunner[object]:
        program, forces_tokens = self._loaded.program, self._forces_tokens
        return ModelRunner(self.backend, program, self.batch, self._launcher, forces_tokens=forces_tokens)

    def _segment(self, scheduled: ScheduledSequence) -> Segment:
        """Take in one sequence's part of the plan; see Batch.update and GrammarCompiler.matcher for what they raise."""
        state = self.batch.update(scheduled)
        if scheduled.new is not None and scheduled.new.grammar:
            if self._grammars is None:
                raise ValueError("this worker knows no grammars")
            state.matcher = self._grammars.matcher(scheduled.new.grammar)
        first, end = scheduled.num_computed, scheduled.num_computed + scheduled.num_new
        prompt_rows = 0
        if state.sampling.prompt_logprobs is not None:
            # The logits of a position speak of the next one, so the last prompt position has none of them to give.
            prompt_rows = max(0, min(end, state.num_prompt - 1) - first)
        num_drafts = len(scheduled.draft_token_ids)
        if num_drafts and num_drafts + prompt_rows > EXTRA_LOGIT_ROWS:
            raise ValueError(
                f"{num_drafts} drafts and {prompt_rows} prompt logprobs were scheduled; the limit is {EXTRA_LOGIT_ROWS}"
            )
        num_cut = num_drafts - num_allowed(self.batch, state, num_drafts)
        return Segment(state, first, scheduled.num_new - num_cut, scheduled.needs_sample, prompt_rows, num_drafts - num_cut)


def _max_logits(max_num_seqs: int) -> int:
    """Most rows of logits of one forward pass: one to sample from per sequence, and the extra ones."""
    return max_num_seqs + EXTRA_LOGIT_ROWS
