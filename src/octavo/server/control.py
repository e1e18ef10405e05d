"""The admin routes: settings in force, changing them while requests run, the KV cache laid open. See docs/operations.md."""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec
from pydantic import create_model
from starlette.requests import Request
from starlette.responses import Response

from octavo.config.changes import Changes, settings_in_force
from octavo.errors import InvalidRequestError
from octavo.kvcache.report import BLOCK_LETTERS
from octavo.server.body import Body, Int64, parse_body
from octavo.server.context import service_of
from octavo.server.errors import json_response
from octavo.server.json_body import read_json_object
from octavo.server.model_reload import ModelReload

RELOAD_MODES = ("drain", "abort")

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


class ReloadBody(Body):
    """model_path: a folder, a .gguf file or a name of the hub. mode: what becomes of requests under way."""

    model_path: str
    mode: str = "drain"


async def reload_model(request: Request) -> Response:
    """POST /reload: {"model_path", "mode"}: serve another model; {"model", "system_fingerprint", "description"} when it does.

    400 names model_path for a model that cannot be served, and the one before goes on then.
    """
    body = parse_body(ReloadBody, await read_json_object(request), {})
    if body.mode == "recompute":
        raise InvalidRequestError(
            "mode recompute is not offered: an answer is never continued by another model than the one that began it; use "
            "drain or abort",
            param="mode",
        )
    if body.mode not in RELOAD_MODES:
        raise InvalidRequestError(f"mode is {body.mode[:100]!r}; it must be {' or '.join(RELOAD_MODES)}", param="mode")
    if not body.model_path.strip():
        raise InvalidRequestError("model_path is empty; give a folder, a .gguf file or a name of the hub", param="model_path")
    reload: ModelReload | None = getattr(request.app.state, "model_reload", None)
    if reload is None:
        raise InvalidRequestError("this app does not start engines, so it cannot load another model", code="unsupported_field")
    service = await reload.run(body.model_path, body.mode)
    answer = {"model": service.model_name, "system_fingerprint": service.system_fingerprint}
    return json_response(msgspec.json.encode(answer))


async def memory(request: Request) -> Response:
    """GET /admin/memory: kvcache.report.MemoryReport, with the meaning of the letters of its block map."""
    report = await service_of(request).engine.memory_stats()
    return json_response(msgspec.json.encode({**msgspec.to_builtins(report), "block_letters": BLOCK_LETTERS}))
