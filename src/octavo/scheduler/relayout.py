"""Plan a reconfiguration of scheduler and KV cache between two steps, without changing either."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.scheduler import SchedulerConfig
from octavo.kvcache.manager import KVCacheManager
from octavo.kvcache.relayout import RelayoutDraft
from octavo.scheduler.scheduler import Scheduler
from octavo.sequence import Sequence
from octavo.step import Relayout


@dataclass(frozen=True, slots=True)
class RelayoutPlan:
    """What to do: order for the worker (None: nothing changes there), the manager from then on, who is preempted."""

    order: Relayout | None
    manager: KVCacheManager
    victims: list[Sequence]


def plan_relayout(
    scheduler: Scheduler,
    manager: KVCacheManager,
    before: SchedulerConfig,
    after: SchedulerConfig,
    *,
    num_blocks: int,
    block_size: int,
) -> RelayoutPlan:
    """Who stays under the new bounds, and where their tokens go.

    As many running sequences stay as fit the new step and the new pool; the policy says who does not. Those lose their place in
    the cache, never their place in the queue or a token.
    """
    kept = {sequence.seq_id: sequence for sequence in scheduler.running()}
    victims: list[Sequence] = []
    while len(kept) > min(after.max_num_seqs, after.max_num_batched_tokens):
        victims.append(kept.pop(scheduler.victim(kept.values()).seq_id))
    moves = None
    if (num_blocks, block_size) != (manager.num_blocks, manager.block_size):
        draft = RelayoutDraft(manager, scheduler.running(), num_blocks, block_size)
        for victim in victims:
            draft.drop(victim)
        while not draft.fits:
            victims.append(kept.pop(scheduler.victim(kept.values()).seq_id))
            draft.drop(victims[-1])
        relaid = draft.finish()
        manager, moves = relaid.manager, relaid.moves
    sizes_differ = (before.max_num_seqs, before.max_num_batched_tokens) != (after.max_num_seqs, after.max_num_batched_tokens)
    if moves is None and not sizes_differ:
        return RelayoutPlan(None, manager, victims)
    tables = {seq_id: manager.block_ids(seq_id) for seq_id in kept}
    order = Relayout(block_size, num_blocks, after.max_num_seqs, after.max_num_batched_tokens, moves, tables)
    return RelayoutPlan(order, manager, victims)
