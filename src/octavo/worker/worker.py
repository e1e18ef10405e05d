"""Worker: one device's model, KV cache and sequences; step plans in, step results out."""

from __future__ import annotations

from dataclasses import replace

from octavo.config.engine import EngineConfig
from octavo.loader.checkpoint import Checkpoint
from octavo.models.parameters import ParameterSource
from octavo.models.registry import load_model
from octavo.ops.interface import KVCacheSpec, Program
from octavo.ops.registry import make_backend
from octavo.step import Relayout, ScheduledSequence, StepPlan, StepResult
from octavo.worker.batch import Batch, Share
from octavo.worker.memory import resolve_kv_dtype
from octavo.worker.model_runner import PROMPT_LOGIT_ROWS, ModelRunner


class Worker:
    """Loads the checkpoint onto config.backend.device and executes plans.

    config       resolved: num_threads and max_model_len are set
    num_blocks   KV blocks to reserve
    Raises: LoadError for weights that do not fit the architecture, ConfigError for a device or memory that cannot be had.
    """

    def __init__(self, config: EngineConfig, checkpoint: Checkpoint, num_blocks: int) -> None:
        model_config, scheduler = checkpoint.config, config.scheduler
        assert config.backend.num_threads is not None, "the configuration is not resolved"
        assert scheduler.max_model_len is not None, "the configuration is not resolved"
        self.backend = make_backend(
            config.backend.device,
            num_threads=config.backend.num_threads,
            isa=config.backend.isa,
            dtype=config.loading.dtype,
            quantization=config.loading.quantization,
        )
        source = ParameterSource(checkpoint.tensors, self.backend.parameters, str(checkpoint.path))
        self._model = load_model(model_config, source, scheduler.max_model_len)
        self._eager = config.backend.enforce_eager
        self._cache_spec = KVCacheSpec(
            num_layers=model_config.num_layers,
            num_blocks=num_blocks,
            num_kv_heads=model_config.num_kv_heads,
            block_size=config.cache.block_size,
            head_dim=model_config.head_dim,
            dtype=resolve_kv_dtype(config.cache.kv_cache_dtype),
        )
        self.backend.allocate_kv_cache(self._cache_spec)
        program = self._compile(scheduler.max_num_seqs, scheduler.max_num_batched_tokens)
        self.batch = Batch(
            max_seqs=scheduler.max_num_seqs,
            max_tokens=scheduler.max_num_batched_tokens,
            max_logits=_max_logits(scheduler.max_num_seqs),
            max_model_len=scheduler.max_model_len,
            block_size=config.cache.block_size,
            num_blocks=num_blocks,
            vocab_size=model_config.vocab_size,
        )
        self._runner = ModelRunner(self.backend, program, self.batch)

    def execute(self, plan: StepPlan) -> StepResult:
        """Run one step: forget, take in, copy blocks, compute, sample.

        A sequence whose own handling raises is forgotten and reported in `failed`. An error of the forward pass itself concerns
        the whole step and is raised.
        """
        for seq_id in plan.removed:
            self.batch.remove(seq_id)
        failed: dict[int, str] = {}
        shares: list[Share] = []
        for scheduled in plan.sequences:
            try:
                shares.append(self._share(scheduled))
            except Exception as error:  # whatever it is, it must end this sequence and no other
                failed[scheduled.seq_id] = f"the step could not be prepared: {error}"
        if plan.block_copies:
            self.backend.copy_blocks(plan.block_copies)
        sampled, prompt_logprobs = self._runner.run(shares, failed)
        for seq_id in failed:
            self.batch.remove(seq_id)
        return StepResult(plan.step_id, sampled, prompt_logprobs, failed)

    def reconfigure(self, relayout: Relayout) -> None:
        """Take new sizes between two steps: another KV cache with the tokens moved there, another program.

        Raises: ConfigError when the memory cannot be had; all is as it was then. While the tokens move, both caches exist, but
        the old one gives its memory back layer by layer.
        """
        spec, previous = self._cache_spec, None
        if relayout.moves is not None:
            spec = replace(spec, num_blocks=relayout.num_blocks, block_size=relayout.block_size)
            previous = self.backend.replace_kv_cache(spec)
        try:
            program = self._compile(relayout.max_num_seqs, relayout.max_num_batched_tokens)
            self.batch.relay(relayout, _max_logits(relayout.max_num_seqs))
        except BaseException:
            if previous is not None:
                self.backend.restore_kv_cache(previous)
            raise
        if relayout.moves is not None:
            self.backend.move_tokens(previous, relayout.moves)
        self._cache_spec = spec
        self._runner = ModelRunner(self.backend, program, self.batch)

    def _compile(self, max_num_seqs: int, max_num_batched_tokens: int) -> Program:
        return self.backend.compile(
            self._model,
            max_tokens=max_num_batched_tokens,
            max_logits=_max_logits(max_num_seqs),
            max_seqs=max_num_seqs,
            eager=self._eager,
        )

    def _share(self, scheduled: ScheduledSequence) -> Share:
        """Take in one sequence's part of the plan; see Batch.update for what it raises."""
        state = self.batch.update(scheduled)
        first, end = scheduled.num_computed, scheduled.num_computed + scheduled.num_new
        prompt_rows = 0
        if state.sampling.prompt_logprobs is not None:
            # The logits of a position speak of the next one, so the last prompt position has none of them to give.
            prompt_rows = max(0, min(end, state.num_prompt - 1) - first)
        return Share(state, first, scheduled.num_new, scheduled.needs_sample, prompt_rows)


def _max_logits(max_num_seqs: int) -> int:
    """Most rows of logits of one forward pass: one to sample from per sequence, and those for prompt logprobs."""
    return max_num_seqs + PROMPT_LOGIT_ROWS
