"""Request: what the engine core is asked to do, fully validated and resolved; and the ids requests go by."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import msgspec

from octavo.errors import InvalidRequestError
from octavo.pooling_params import Pooling
from octavo.sampling_params import SamplingParams

DEFAULT_TENANT = "default"
"""Of requests that say nothing of whose they are."""
MAX_REQUEST_ID_LENGTH = 256
MAX_CACHE_SALT_LENGTH = 256
MAX_TENANT_LENGTH = 256
MAX_TIMEOUT_S = 86_400.0
MAX_PRIORITY = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """What a request says besides its prompt and its sampling. Nothing in it changes which token comes next.

    priority    lower is served first, for policies that look at it
    cache_salt  requests share prefix-cache blocks only with equal salts
    tenant      whose it is, for the policy fair and for the bill
    prediction  what the answer is likely to be like: guesses of its tokens are taken from it
    timeout_s   seconds after which it ends with what it has: finish_reason "length", stop_reason "timeout"; None: never
    """

    priority: int = 0
    cache_salt: str = ""
    tenant: str = DEFAULT_TENANT
    timeout_s: float | None = None
    prediction: str = ""

    def validate(self) -> None:
        """Raise InvalidRequestError naming the field; values from Python may have any type."""
        salt, priority, tenant, timeout_s = self.cache_salt, self.priority, self.tenant, self.timeout_s
        if not isinstance(salt, str) or len(salt) > MAX_CACHE_SALT_LENGTH:
            raise InvalidRequestError(
                f"cache_salt must be a text of at most {MAX_CACHE_SALT_LENGTH} characters", param="cache_salt"
            )
        if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > MAX_PRIORITY:
            raise InvalidRequestError(
                f"priority is {priority!r}; it must be an integer within +-{MAX_PRIORITY}", param="priority"
            )
        if not isinstance(tenant, str) or not 0 < len(tenant) <= MAX_TENANT_LENGTH:
            raise InvalidRequestError(f"the tenant must be a text of 1..{MAX_TENANT_LENGTH} characters", param="user")
        if not isinstance(self.prediction, str):
            raise InvalidRequestError("prediction must be a text", param="prediction")
        if timeout_s is None:
            return
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= MAX_TIMEOUT_S:
            raise InvalidRequestError(
                f"timeout is {timeout_s!r}; it must be a number of seconds above 0, at most {MAX_TIMEOUT_S:g}", param="timeout"
            )


NO_OPTIONS = RequestOptions()


class Request(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One request as `engine.frontend.input` made it; it crosses the process border unchanged.

    request_id        unique among the live requests of the engine
    prompt_token_ids  at least one, all within the vocabulary
    seed              resolved, never None; choice i draws its noise from (seed, i, position)
    max_tokens        resolved, at least 1; prompt + max_tokens <= max_model_len. 0 with pooling
    stop_token_ids    the model's end-of-sequence ids (unless ignore_eos) and the request's own
    arrival_s         monotonic clock; one clock for all processes of a machine
    cache_salt        requests share prefix-cache blocks only with equal salts
    priority          lower is served first, for policies that look at it
    tenant            whose it is: the name of its API key or its `user` field
    deadline_s        when it ends with what it has, on the clock of arrival_s; None: never
    grammar           what the output is held to (see grammar.source); "" is nothing
    pooling           set: nothing is generated, the prompt's hidden states are pooled
    predicted_token_ids  what the output is likely to be like: guesses are taken from it; it changes no token
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
    grammar: str = ""
    pooling: Pooling | None = None
    predicted_token_ids: list[int] = []


def new_request_id(prefix: str = "req") -> str:
    """A fresh id, unique without coordination: "<prefix>-<32 hex digits>"."""
    return f"{prefix}-{uuid.uuid4().hex}"
