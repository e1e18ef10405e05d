"""build_core: from a configuration to an EngineCore that can serve: header, budgets, weights, worker, scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.config.engine import EngineConfig
from octavo.config.resolve import Resolved
from octavo.config.resolved import ResolvedConfig
from octavo.engine.core.engine_core import EngineCore
from octavo.engine.core.retry import Worker as StepWorker
from octavo.grammar.compiler import GrammarCompiler
from octavo.kvcache.manager import KVCacheManager
from octavo.loader.checkpoint import open_checkpoint
from octavo.loader.identity import FileIdentity
from octavo.models.registry import declare
from octavo.ops.interface import Program
from octavo.scheduler.drafter import Drafter
from octavo.scheduler.estimator import Estimator
from octavo.scheduler.policies.registry import policy_for
from octavo.scheduler.preemption import Preemption
from octavo.scheduler.scheduler import Scheduler
from octavo.worker.program import load_and_resolve
from octavo.worker.worker import Worker


@dataclass(slots=True)
class BuiltCore:
    """A core, the resolved configuration it runs with, the identity of its weights, and the lines to print at start.

    files     the files of the model, as they were opened
    program   tells what the worker runs now, for profiling; None with a worker that has no program
    """

    core: EngineCore
    resolved: Resolved
    weights_version: bytes
    description: list[str]
    files: tuple[FileIdentity, ...] = ()
    program: Callable[[], Program[object]] | None = None


def build_core(
    config: EngineConfig,
    wrap_worker: Callable[[StepWorker], StepWorker] | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    depth: int = 1,
    drafter: Drafter | None = None,
    forces_tokens: bool = True,
) -> BuiltCore:
    """config.loading.model is a path here; wrap_worker may put an observer around the worker; depth as in EngineCore;
    forces_tokens as in Worker.

    Raises LoadError and ConfigError naming file, tensor or flag.
    """
    # The face in front of the core has read the same configuration and logged what is odd about it.
    checkpoint = open_checkpoint(Path(config.loading.model), declare, config.loading.load_format, quiet=True)
    loaded, resolved = load_and_resolve(config, checkpoint)
    grammars = GrammarCompiler()
    worker = Worker(resolved.config, loaded, overlap=depth > 1, grammars=grammars, forces_tokens=forces_tokens)
    observed = worker if wrap_worker is None else wrap_worker(worker)
    core = assemble_core(
        resolved.config,
        observed,
        checkpoint.weights_version,
        worker.swap_block_s,
        clock=clock,
        depth=depth,
        drafter=drafter,
        grammars=grammars,
    )
    description = resolved.describe(worker.backend.describe())
    return BuiltCore(core, resolved, checkpoint.weights_version, description, checkpoint.files, lambda: worker.program)


def assemble_core(
    config: ResolvedConfig,
    worker: StepWorker,
    weights_version: bytes,
    swap_block_s: float | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    depth: int = 1,
    drafter: Drafter | None = None,
    grammars: GrammarCompiler | None = None,
) -> EngineCore:
    """Scheduler and KV cache around a worker. swap_block_s: see Preemption.measured_block_s; grammars: the worker's own."""
    cache = config.cache
    kv_cache = KVCacheManager(
        cache.num_blocks,
        cache.block_size,
        cache.enable_prefix_caching,
        weights_version.hex(),
        cache.num_swap_blocks,
    )
    estimator = Estimator()
    preemption = Preemption(estimator.step_time, measured_block_s=swap_block_s)
    policy = policy_for(config.scheduler, estimator)
    scheduler = Scheduler(config.scheduler, kv_cache, policy, estimator, preemption, drafter)
    return EngineCore(config, scheduler, kv_cache, worker, clock, depth=depth, grammars=grammars)
