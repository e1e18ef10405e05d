"""run_one_by_one: a step that raised as a whole, tried again one sequence at a time, so that only the guilty ones end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from octavo.kvcache.manager import KVCacheManager
from octavo.log import get_logger
from octavo.scheduler.step_builder import new_sequence
from octavo.sequence import Sequence
from octavo.step import Relayout, RelayoutResult, ScheduledSequence, StepPlan, StepResult

_logger = get_logger(__name__)


class Worker(Protocol):
    """What the core needs of worker.Worker. Plans run and are finished in the order in which they are started."""

    def start(self, plan: StepPlan) -> None: ...

    def finish(self) -> StepResult:
        """The result of the oldest plan. If it raises, the plans behind it are dropped, and nothing of them has been done."""

    def drop(self) -> None:
        """Forget the plans that were started, once the device is at rest."""

    def reconfigure(self, relayout: Relayout) -> RelayoutResult: ...


def run_one_by_one(
    worker: Worker, plan: StepPlan, error: Exception, live: Mapping[int, Sequence], kv_cache: KVCacheManager
) -> StepResult:
    """Run every share of a failed step, whose error it was, as a step of its own. Nothing else is in flight on the worker.

    live  the sequences that have not ended, by id; for the others nothing is computed

    The worker may have applied any part of the plan, so each share tells it everything anew; computing a position again writes
    the same keys and values. Where the hidden states of earlier steps count too, those steps are run again before it.
    """
    merged = StepResult(plan.step_id, [])
    if plan.removed or plan.block_copies or plan.swap_out or plan.swap_in:
        alone = StepPlan(plan.step_id, [], plan.block_copies, plan.removed, plan.swap_out, plan.swap_in)
        try:
            merged.swap = _run(worker, alone).swap
        except Exception:
            _logger.exception("the block copies of the step failed too; all its sequences end")
            merged.failed = {share.seq_id: describe(error) for share in plan.sequences}
            return merged
    for share in plan.sequences:
        sequence = live.get(share.seq_id)
        if sequence is None:
            continue
        try:
            result = _run_alone(worker, plan, _restated(share, sequence, kv_cache), sequence.reads_every_row)
        except Exception as guilt:
            _logger.exception("sequence %d failed alone too and ends", share.seq_id)
            merged.failed[share.seq_id] = describe(guilt)
            continue
        merged.sampled += result.sampled
        merged.prompt_logprobs += result.prompt_logprobs
        merged.pooled += result.pooled
        merged.failed.update(result.failed)
        if merged.swap is not None and result.swap is not None:
            merged.swap.not_run += result.swap.not_run
    return merged


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _run_alone(worker: Worker, plan: StepPlan, share: ScheduledSequence, from_start: bool) -> StepResult:
    """Run a share that tells the worker everything; from_start: in steps that begin at position 0."""
    end = share.num_computed + share.num_new
    first = 0 if from_start else share.num_computed
    size = plan.num_tokens if from_start else share.num_new
    result = StepResult(plan.step_id, [])
    for start in range(first, end, size):
        piece = msgspec.structs.replace(share, num_computed=start, num_new=min(size, end - start))
        if start > first:
            piece = msgspec.structs.replace(piece, new=None, new_block_ids=[])
        result = _run(worker, StepPlan(plan.step_id, [piece], [], [share.seq_id] if start == first else []))
        if result.failed:
            break
    return result


def _run(worker: Worker, plan: StepPlan) -> StepResult:
    worker.start(plan)
    return worker.finish()


def _restated(share: ScheduledSequence, sequence: Sequence, kv_cache: KVCacheManager) -> ScheduledSequence:
    """The same share for a worker that knows nothing of the sequence: all tokens, the whole block table."""
    return msgspec.structs.replace(
        share,
        new_block_ids=kv_cache.block_ids(share.seq_id),
        token_ids=[],
        new=new_sequence(sequence),
        replaced_blocks=[],
    )
