"""The admin routes: settings in force, changing them while requests run, the KV cache laid open. See docs/operations.md."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.config.changes import settings_in_force
from octavo.kvcache.report import BLOCK_LETTERS
from octavo.server.context import context_of
from octavo.server.errors import json_response
from octavo.server.json_body import read_json_object
from octavo.server.openai.body import Body, parse_body


class ReconfigureBody(Body):
    """Fields as in config.changes.Changes, whose meanings and limits are those of the flags; absent or null: unchanged."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    chunked_prefill_size: int | None = None
    target_itl: float | None = None
    scheduler_policy: str | None = None
    max_wait: float | None = None
    admission: str | None = None
    preemption_mode: str | None = None
    max_num_queued_requests: int | None = None
    max_num_queued_tokens: int | None = None
    queue_timeout: float | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    kv_cache_memory: float | None = None
    swap_space: float | None = None


async def config(request: Request) -> Response:
    """GET /admin/config: {"settings"}: what /admin/reconfigure can change, as it is now."""
    return json_response(msgspec.json.encode({"settings": settings_in_force(context_of(request).engine.resolved_config)}))


async def reconfigure(request: Request) -> Response:
    """POST /admin/reconfigure: change settings between two steps, all or none.

    {"changed": {name: [before, after]}, "settings", "num_preempted", "num_moved_tokens", "duration_s"}; 400 names the field
    that cannot be, and nothing has changed then.
    """
    body = parse_body(ReconfigureBody, await read_json_object(request), {})
    report = await context_of(request).engine.reconfigure(**body.model_dump(exclude_none=True))
    answer: dict[str, Any] = {
        "changed": report.changed,
        "settings": settings_in_force(report.config),
        "num_preempted": report.num_preempted,
        "num_moved_tokens": report.num_moved_tokens,
        "duration_s": report.duration_s,
    }
    return json_response(msgspec.json.encode(answer))


async def memory(request: Request) -> Response:
    """GET /admin/memory: kvcache.report.MemoryReport, with the meaning of the letters of its block map."""
    report = await context_of(request).engine.memory_stats()
    return json_response(msgspec.json.encode({**msgspec.to_builtins(report), "block_letters": BLOCK_LETTERS}))
