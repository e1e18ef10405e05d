"""Request: what the engine core is asked to do, fully validated and resolved; and the ids requests go by."""

from __future__ import annotations

import uuid

import msgspec

from octavo.sampling_params import SamplingParams

DEFAULT_TENANT = "default"
"""Of requests that say nothing of whose they are."""
MAX_REQUEST_ID_LENGTH = 256
MAX_CACHE_SALT_LENGTH = 256
MAX_TENANT_LENGTH = 256
MAX_TIMEOUT_S = 86_400.0


class Request(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One request as `engine.frontend.input` made it; it crosses the process border unchanged.

    request_id        unique among the live requests of the engine
    prompt_token_ids  at least one, all within the vocabulary
    seed              resolved, never None; choice i draws its noise from (seed, i, position)
    max_tokens        resolved, at least 1; prompt + max_tokens <= max_model_len
    stop_token_ids    the model's end-of-sequence ids (unless ignore_eos) and the request's own
    arrival_s         monotonic clock; one clock for all processes of a machine
    cache_salt        requests share prefix-cache blocks only with equal salts
    priority          lower is served first, for policies that look at it
    tenant            whose it is: the name of its API key or its `user` field
    deadline_s        when it ends with what it has, on the clock of arrival_s; None: never
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    seed: int
    max_tokens: int
    stop_token_ids: list[int]
    arrival_s: float
    cache_salt: str = ""
    priority: int = 0
    tenant: str = DEFAULT_TENANT
    deadline_s: float | None = None


def new_request_id(prefix: str = "req") -> str:
    """A fresh id, unique without coordination: "<prefix>-<32 hex digits>"."""
    return f"{prefix}-{uuid.uuid4().hex}"
