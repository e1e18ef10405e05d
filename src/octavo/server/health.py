"""Health in words: what /health/detail and systemd's status line say."""

from __future__ import annotations

import time
from dataclasses import dataclass

from octavo.config.machine import read_machine
from octavo.engine.frontend.ledger import Ledger
from octavo.errors import OctavoError
from octavo.server.service.engine_face import Engine

WARN_SHARE = 0.9
"""Of the KV cache, of the queue, or of the memory: above it the status is warn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheHealth:
    num_used_blocks: int
    num_blocks: int
    usage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHealth:
    """Of the host, within the limits of the container."""

    available_bytes: int
    total_bytes: int
    usage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHealth:
    num_running: int
    num_waiting: int
    max_num_waiting: int
    oldest_waiting_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """status: healthy, warn (something is nearly full), draining or dead. reason: the same in words."""

    status: str
    reason: str
    kv_cache: KvCacheHealth
    memory: MemoryHealth
    requests: RequestHealth

    @property
    def takes_requests(self) -> bool:
        return self.status in ("healthy", "warn")


async def read_health(engine: Engine, *, is_draining: bool) -> Health:
    """The health of now."""
    fault = ""
    try:
        await engine.check_health()
    except OctavoError as error:
        fault = error.message
    ledger, core, machine = engine.ledger, engine.ledger.core, read_machine()
    kv_cache = KvCacheHealth(
        num_used_blocks=core.num_used_blocks,
        num_blocks=core.num_blocks,
        usage=core.num_used_blocks / core.num_blocks if core.num_blocks else 0.0,
    )
    memory = MemoryHealth(
        available_bytes=machine.available_bytes,
        total_bytes=machine.total_bytes,
        usage=max(0.0, 1 - machine.available_bytes / machine.total_bytes),
    )
    requests = _requests(ledger, engine.resolved_config.scheduler.max_num_queued_requests)
    status, reason = _status(fault, is_draining, kv_cache, memory, requests)
    return Health(status=status, reason=reason, kv_cache=kv_cache, memory=memory, requests=requests)


def _requests(ledger: Ledger, max_num_waiting: int) -> RequestHealth:
    oldest_s = ledger.oldest_arrival_s()
    return RequestHealth(
        num_running=ledger.num_running,
        num_waiting=ledger.num_queued,
        max_num_waiting=max_num_waiting,
        oldest_waiting_s=0.0 if oldest_s is None else max(0.0, time.monotonic() - oldest_s),
    )


def _status(
    fault: str, is_draining: bool, kv_cache: KvCacheHealth, memory: MemoryHealth, requests: RequestHealth
) -> tuple[str, str]:
    if fault:
        return "dead", fault
    if is_draining:
        return (
            "draining",
            f"the server is shutting down; {requests.num_running + requests.num_waiting} requests run to their end",
        )
    full = []
    if kv_cache.usage > WARN_SHARE:
        full.append(f"{kv_cache.usage:.0%} of the KV cache is in use (--kv-cache-memory gives more)")
    if memory.usage > WARN_SHARE:
        full.append(f"{memory.usage:.0%} of the memory is in use")
    if requests.num_waiting > WARN_SHARE * requests.max_num_waiting:
        full.append(f"{requests.num_waiting} requests wait, of {requests.max_num_waiting} that may (--max-num-queued-requests)")
    if full:
        return "warn", "; ".join(full)
    return "healthy", f"{requests.num_running} requests run, {requests.num_waiting} wait"
