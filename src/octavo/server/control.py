"""The admin routes: settings in force, changing them while requests run, the KV cache laid open. See docs/operations.md."""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec
from pydantic import create_model
from starlette.requests import Request
from starlette.responses import Response

from octavo.config.changes import Changes, settings_in_force
from octavo.kvcache.report import BLOCK_LETTERS
from octavo.server.body import Body, Int64, parse_body
from octavo.server.context import service_of
from octavo.server.errors import json_response
from octavo.server.json_body import read_json_object

# 64 bits are what the wire to the core holds; the core knows the narrower limits.
_FIELDS: dict[str, Any] = {
    name: (Int64 | None if hint == int | None else hint, None) for name, hint in get_type_hints(Changes).items()
}
ReconfigureBody = create_model(
    "ReconfigureBody",
    __base__=Body,
    __doc__="Fields as in config.changes.Changes, whose meanings and limits are those of the flags; absent or null: unchanged.",
    **_FIELDS,
)


async def config(request: Request) -> Response:
    """GET /admin/config: {"settings"}: what /admin/reconfigure can change, as it is now."""
    return json_response(msgspec.json.encode({"settings": settings_in_force(service_of(request).engine.resolved_config)}))


async def reconfigure(request: Request) -> Response:
    """POST /admin/reconfigure: change settings between two steps, all or none.

    {"changed": {name: [before, after]}, "settings", "num_preempted", "num_moved_tokens", "duration_s"}; 400 names the field
    that cannot be, and nothing has changed then.
    """
    body = parse_body(ReconfigureBody, await read_json_object(request), {})
    report = await service_of(request).engine.reconfigure(**body.model_dump(exclude_none=True))
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
    report = await service_of(request).engine.memory_stats()
    return json_response(msgspec.json.encode({**msgspec.to_builtins(report), "block_letters": BLOCK_LETTERS}))
