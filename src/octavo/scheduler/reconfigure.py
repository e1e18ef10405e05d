"""Plan a reconfiguration of scheduler and KV cache between two steps, without changing either."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.resolved import ResolvedConfig
from octavo.kvcache.manager import KVCacheManager
from octavo.kvcache.relayout import RelayoutBuilder
from octavo.kvcache.swap import SlotMoves
from octavo.scheduler.scheduler import Scheduler
from octavo.sequence import Sequence
from octavo.step import Relayout


@dataclass(frozen=True, slots=True)
class RelayoutPlan:
    """What to do: relayout for the worker (None: nothing changes there), the manager from then on, who is preempted.

    slots  for manager.swap.resize, when it is this swap space that gets another size; the worker's moves come first
    """

    relayout: Relayout | None
    manager: KVCacheManager
    victims: list[Sequence]
    slots: SlotMoves | None = None


def plan_relayout(scheduler: Scheduler, manager: KVCacheManager, before: ResolvedConfig, after: ResolvedConfig) -> RelayoutPlan:
    """Who stays under the new bounds, and where their tokens go.

    As many running sequences stay as fit the new step and the new pool; the policy says who does not. Those lose their place in
    the cache, never their place in the queue or a token.
    """
    step, cache = after.scheduler, after.cache
    num_blocks, block_size, num_slots = cache.num_blocks, cache.block_size, cache.num_swap_blocks
    kept = {sequence.seq_id: sequence for sequence in scheduler.running()}
    victims: list[Sequence] = []
    while len(kept) > min(step.max_num_seqs, step.max_num_batched_tokens):
        victims.append(kept.pop(scheduler.victim(kept.values()).seq_id))
    moves = slots = None
    if (num_blocks, block_size) != (manager.num_blocks, manager.block_size):
        layout = RelayoutBuilder(manager, scheduler.running(), num_blocks, block_size, num_slots)
        for victim in victims:
            layout.drop(victim)
        while not layout.fits:
            victims.append(kept.pop(scheduler.victim(kept.values()).seq_id))
            layout.drop(victims[-1])
        relaid = layout.finish()
        manager, moves = relaid.manager, relaid.moves
    elif num_slots != manager.swap.num_slots:
        slots = manager.swap.plan_resize(num_slots)
    sizes = [(config.scheduler.max_num_seqs, config.scheduler.max_num_batched_tokens) for config in (before, after)]
    if moves is None and slots is None and sizes[0] == sizes[1]:
        return RelayoutPlan(None, manager, victims)
    tables = {seq_id: manager.block_ids(seq_id) for seq_id in kept}
    relayout = Relayout(
        block_size,
        num_blocks,
        step.max_num_seqs,
        step.max_num_batched_tokens,
        moves,
        tables,
        num_slots,
        slots.moves if slots is not None else [],
    )
    return RelayoutPlan(relayout, manager, victims, slots)
