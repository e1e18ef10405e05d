"""core_stats: the figures of scheduler and core as the message that carries them."""

from __future__ import annotations

from octavo.engine.wire.messages import CoreStats
from octavo.kvcache.stats import KVCacheStats
from octavo.scheduler.scheduler import Scheduler


def core_stats(
    scheduler: Scheduler, kv: KVCacheStats, *, num_steps: int, busy_s: float, num_reconfigurations: int, num_tunings: int
) -> CoreStats:
    """The figures of scheduler and KV cache with the core's own counters."""
    preemption, drafts = scheduler.preemption, scheduler.speculation.stats
    return CoreStats(
        num_running=scheduler.num_running,
        num_waiting=scheduler.num_waiting,
        num_used_blocks=kv.num_used,
        num_blocks=kv.num_blocks,
        prefix_queries=kv.query_tokens,
        prefix_hits=kv.hit_tokens,
        num_preemptions=scheduler.num_preemptions,
        num_steps=num_steps,
        num_swapped_blocks=kv.num_swapped,
        num_swap_blocks=kv.num_swap_blocks,
        swap_out_bytes=preemption.out_bytes,
        swap_in_bytes=preemption.in_bytes,
        num_swap_preemptions=preemption.num_swap,
        num_swap_failures=preemption.num_failures,
        prefix_hits_freed=kv.hits.freed,
        prefix_hits_swapped=kv.hits.swapped,
        busy_s=busy_s,
        num_reconfigurations=num_reconfigurations,
        num_tunings=num_tunings,
        num_drafts=drafts.num_drafts,
        num_draft_tokens=drafts.num_draft_tokens,
        accepted_at=drafts.accepted_at,
    )
