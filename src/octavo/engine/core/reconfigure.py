"""Reconfiguration: other settings between two steps, all or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.config.changes import Changes, apply_changes, settings_in_force
from octavo.config.resolved import ResolvedConfig
from octavo.engine.core.retry import Worker
from octavo.engine.wire.messages import ReconfigureReport
from octavo.errors import ConfigError
from octavo.kvcache.manager import KVCacheManager
from octavo.scheduler.policies.registry import policy_for
from octavo.scheduler.reconfigure import RelayoutPlan, plan_relayout
from octavo.scheduler.scheduler import Scheduler
from octavo.step import RelayoutResult


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """What came of it: the configuration and the KV cache from now on, and what was done for them."""

    before: ResolvedConfig
    config: ResolvedConfig
    plan: RelayoutPlan

    @property
    def kv_cache(self) -> KVCacheManager:
        return self.plan.manager

    def report(self, duration_s: float, reason: str) -> ReconfigureReport:
        old, new = settings_in_force(self.before), settings_in_force(self.config)
        moves = self.plan.relayout.moves if self.plan.relayout is not None else None
        return ReconfigureReport(
            config=self.config,
            changed={name: (old[name], new[name]) for name in new if old[name] != new[name]},
            num_preempted=len(self.plan.victims),
            num_moved_tokens=sum(count for _, _, count in moves or ()),
            duration_s=duration_s,
            reason=reason,
        )


def reconfigure(
    config: ResolvedConfig,
    changes: Changes,
    scheduler: Scheduler,
    kv_cache: KVCacheManager,
    worker: Worker,
    free_bytes: Callable[[], int],
) -> Reconfiguration:
    """Change scheduler and worker; no step is in flight. free_bytes: memory that the machine has left for this process.

    Raises: ConfigError naming the setting that cannot be; everything is as before then.
    """
    kv = kv_cache.stats()
    # Blocks that were never used cost no memory yet; the others come back when the cache is replaced.
    spare_bytes = free_bytes() + max(kv.num_used, kv.num_cached) * config.cache.block_bytes
    after = apply_changes(config, changes, free_bytes=spare_bytes)
    plan, result = plan_relayout(scheduler, kv_cache, config, after), RelayoutResult()
    if plan.relayout is not None:
        try:
            result = worker.reconfigure(plan.relayout)
        except MemoryError:
            raise ConfigError("there is not enough memory for these settings", param=next(iter(changes.given()))) from None
    if plan.slots is not None:
        plan.manager.swap.resize(plan.slots, result.lost_slots)
    scheduler.reconfigure(after.scheduler, plan.manager, plan.victims, result.swap_block_s)
    if after.scheduler.scheduler_policy != config.scheduler.scheduler_policy:
        scheduler.set_policy(policy_for(after.scheduler, scheduler.estimator))
    return Reconfiguration(config, after, plan)


def describe_change(report: ReconfigureReport) -> str:
    """A reconfiguration in one line of the log."""
    changed = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in report.changed.items()) or "nothing"
    cause = f" ({report.reason})" if report.reason else ""
    return (
        f"reconfigured{cause}: {changed}; {report.num_moved_tokens} tokens moved, {report.num_preempted} sequences preempted, "
        f"{1000 * report.duration_s:.1f} ms"
    )
