"""What Ollama's API says of models: the one that is served, under each of its names. None can be made, copied or removed."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.config.loading import ROUNDING_METHODS
from octavo.config.model import ModelConfig
from octavo.errors import InvalidRequestError, PermissionDeniedError
from octavo.server.body import Body, ModelName, parse_body
from octavo.server.context import service_of
from octavo.server.errors import json_response
from octavo.server.json_body import read_json_object
from octavo.server.ollama.answers import NDJSON, encode, line, rfc3339
from octavo.server.ollama.names import check_model, shown_name
from octavo.server.ollama.thinking import can_think
from octavo.server.service.service import Service

API_VERSION = "0.13.0"
"""Version of Ollama whose API this is. Programs ask for it and refuse to work with what they take for an old Ollama."""

LOADED_FOR_S = 100 * 365 * 86400
"""Until when the model says that it stays loaded: for ever, in words that every client can read."""

_SUFFIXES = (".safetensors", ".gguf")


class ModelBody(Body):
    """model, or name, its old name."""

    model: ModelName | None = None
    name: ModelName | None = None
    verbose: bool | None = None
    stream: bool | None = None
    insecure: bool | None = None
    keep_alive: float | str | None = None


async def root(request: Request) -> Response:
    """GET /: the words by which programs know that somebody who speaks Ollama's API is there."""
    return Response("Ollama is running", media_type="text/plain")


async def version(request: Request) -> Response:
    """GET /api/version."""
    return json_response(encode({"version": API_VERSION}))


async def tags(request: Request) -> Response:
    """GET /api/tags: {"models": [...]}, one entry per name."""
    service = service_of(request)
    entries = await asyncio.to_thread(_entries, service)
    return json_response(encode({"models": entries}))


async def ps(request: Request) -> Response:
    """GET /api/ps: the same models, all of them loaded."""
    service = service_of(request)
    until = rfc3339(time.time() + LOADED_FOR_S)
    loaded = {"expires_at": until, "size_vram": 0, "context_length": service.max_model_len}
    entries = await asyncio.to_thread(_entries, service)
    return json_response(encode({"models": [{**entry, **loaded} for entry in entries]}))


async def show(request: Request) -> Response:
    """POST /api/show: details, template, parameters and capabilities of the model."""
    service = service_of(request)
    body = parse_body(ModelBody, await read_json_object(request), {})
    check_model(service, _required_name(body))
    entry = (await asyncio.to_thread(_entries, service))[0]
    defaults = service.engine.generation_defaults
    answer = {
        "modelfile": f"FROM {service.model_name}\n",
        "parameters": "\n".join(f"{name} {value}" for name, value in defaults.items()),
        "template": service.engine.chat_template.source or "",
        "details": entry["details"],
        "model_info": _model_info(service),
        "capabilities": _capabilities(service),
        "modified_at": entry["modified_at"],
    }
    return json_response(encode(answer))


async def pull(request: Request) -> Response:
    """POST /api/pull: success for the served model, which is here already; 404 for any other."""
    service = service_of(request)
    body = parse_body(ModelBody, await read_json_object(request), {})
    check_model(service, _required_name(body))
    done = {"status": "success"}
    if body.stream is False:
        return json_response(encode(done))
    return Response(line({"status": "pulling manifest"}) + line(done), media_type=NDJSON)


async def closed(request: Request) -> Response:
    """What would change the store of models, which this server has none of."""
    raise PermissionDeniedError(
        f"{request.method} {request.url.path} is not here: octavo serves the one model it was started with; "
        "start it with another one (octavo serve MODEL)"
    )


def _required_name(body: ModelBody) -> str:
    name = body.model or body.name
    if name is None:
        raise InvalidRequestError("model is required", param="model", code="missing_field")
    return name


def _entries(service: Service) -> list[dict[str, Any]]:
    """One entry per name; looks at the model's files."""
    files = _weight_files(Path(service.engine.resolved_config.loading.model))
    config = service.engine.model_config
    entry = {
        "modified_at": rfc3339(max((status.st_mtime for status in files), default=service.created)),
        "size": sum(status.st_size for status in files),
        "digest": service.engine.weights_version,
        "details": {
            "parent_model": "",
            "format": "gguf" if config.dtype == "gguf" else "safetensors",
            "family": _family(config),
            "families": [_family(config)],
            "parameter_size": f"{num_parameters(config) / 1e6:.1f}M",
            "quantization_level": _quantization(service),
        },
    }
    return [{"name": shown_name(name), "model": shown_name(name), **entry} for name in service.model_names]


def _weight_files(path: Path) -> list[os.stat_result]:
    """What the system says of the weight files at path; nothing of those that are gone."""
    try:
        files = [file for file in path.iterdir() if file.suffix in _SUFFIXES] if path.is_dir() else [path]
        return [file.stat() for file in files]
    except OSError:
        return []


def _family(config: ModelConfig) -> str:
    return config.architecture.partition("For")[0].lower()


def _quantization(service: Service) -> str:
    loading, dtype = service.engine.resolved_config.loading, service.engine.model_config.dtype
    if loading.quantization in ROUNDING_METHODS:
        return loading.quantization.upper()
    if dtype != "gguf":
        return {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}.get(dtype, dtype)
    # The names of GGUF files say it: SmolLM2-135M-Instruct.Q4_1.gguf, gemma-3-270m-Q4_K_M.gguf.
    words = Path(loading.model).stem.replace(".", "-").split("-")
    return next((word.upper() for word in reversed(words) if word[:1] in "QFIqfi" and word[1:2].isdigit()), "unknown")


def num_parameters(config: ModelConfig) -> int:
    """Numbers in the matrices and norms of a decoder of these dimensions; a model may have a few more."""
    heads = config.head_dim * (2 * config.num_heads + 2 * config.num_kv_heads)
    layer = config.hidden_size * (heads + 3 * config.intermediate_size + 2)
    embeddings = config.vocab_size * config.hidden_size * (1 if config.tie_embeddings else 2)
    return embeddings + config.num_layers * layer + config.hidden_size


def _model_info(service: Service) -> dict[str, Any]:
    config, family = service.engine.model_config, _family(service.engine.model_config)
    values = {
        "context_length": service.max_model_len,
        "embedding_length": config.hidden_size,
        "block_count": config.num_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "vocab_size": config.vocab_size,
    }
    named = {f"{family}.{name}": value for name, value in values.items()}
    return {"general.architecture": family, "general.parameter_count": num_parameters(config), **named}


def _capabilities(service: Service) -> list[str]:
    """Tools are for every model with a chat template: one whose template knows none is told of them all the same."""
    if not service.engine.model_config.has_head:
        return ["embedding"]
    tools = ["tools"] if service.engine.chat_template.exists else []
    return ["completion", *tools, *(["thinking"] if can_think(service) else [])]
