"""build_core: from a configuration to an EngineCore that can serve: header, budgets, weights, worker, scheduler."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.config.engine import EngineConfig
from octavo.config.resolve import Resolved
from octavo.engine.core.engine_core import EngineCore
from octavo.engine.core.retry import Worker as StepWorker
from octavo.kvcache.manager import KVCacheManager
from octavo.loader.checkpoint import Checkpoint, open_checkpoint
from octavo.loader.dummy import DummyTensors
from octavo.loader.parameters import parameter_shapes
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

    program   tells what the worker runs now, for profiling; None with a worker that has no program
    """

    core: EngineCore
    resolved: Resolved
    weights_version: bytes
    description: list[str]
    program: Callable[[], Program[object]] | None = None


def build_core(
    config: EngineConfig,
    wrap_worker: Callable[[StepWorker], StepWorker] | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    depth: int = 1,
    drafter: Drafter | None = None,
) -> BuiltCore:
    """config.loading.model is a path here; wrap_worker may put an observer around the worker; depth as in EngineCore.

    Raises LoadError and ConfigError naming file, tensor or flag.
    """
    checkpoint = open_checkpoint(Path(config.loading.model), config.loading.load_format)
    loaded, resolved = load_and_resolve(config, checkpoint, _weight_bytes(checkpoint))
    worker = Worker(resolved.config, loaded, overlap=depth > 1)
    observed = worker if wrap_worker is None else wrap_worker(worker)
    core = assemble_core(
        resolved.config,
        observed,
        checkpoint.weights_version,
        worker.swap_block_s,
        clock=clock,
        depth=depth,
        drafter=drafter,
    )
    description = resolved.describe(worker.backend.describe())
    return BuiltCore(core, resolved, checkpoint.weights_version, description, lambda: worker.program)


def assemble_core(
    config: EngineConfig,
    worker: StepWorker,
    weights_version: bytes,
    swap_block_s: float | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    depth: int = 1,
    drafter: Drafter | None = None,
) -> EngineCore:
    """Scheduler and KV cache around a worker; `config` is resolved. swap_block_s: see Preemption.measured_block_s."""
    cache = config.cache
    kv_cache = KVCacheManager(
        cache.num_blocks,
        cache.block_size,
        cache.enable_prefix_caching,
        weights_version.hex(),
        cache.num_swap_blocks,
    )
    estimator, preemption = Estimator(), Preemption(measured_block_s=swap_block_s)
    policy = policy_for(config.scheduler, estimator)
    scheduler = Scheduler(config.scheduler, kv_cache, policy, estimator, preemption, drafter)
    return EngineCore(config, scheduler, kv_cache, worker, clock, depth=depth)


def _weight_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of the weights as stored; what the worker repacks is close to it."""
    if isinstance(checkpoint.tensors, DummyTensors):
        # Looking at a dummy tensor would generate it.
        return 4 * sum(math.prod(shape) for shape in parameter_shapes(checkpoint.config).values())
    return sum(tensor.data.nbytes for tensor in checkpoint.tensors.values())
