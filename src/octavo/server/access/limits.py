"""KeyLimits: what one API key may do. Read from the file of --api-keys, checked before it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from octavo.errors import ConfigError, did_you_mean
from octavo.request import MAX_PRIORITY, MAX_TENANT_LENGTH

MAX_NAMES = 256
_MOST = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """None and empty lists are no limit.

    models              names of models that exist for this key
    routes              paths that it opens; one that ends with * stands for all that begin so
    max_tokens          most tokens of an answer: of each choice
    max_context_tokens  most tokens of prompt and answer together
    min_priority        the lowest priority number that it may ask for; lower is served first
    requests_per_minute, requests_per_day, tokens_per_minute, tokens_per_day   tokens are those of prompts and answers
    max_concurrent_requests  requests that run at the same time, streams included
    tenant              whose its requests are; None: the key's name
    weight              share of that tenant under --scheduler-policy fair
    """

    models: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    max_tokens: int | None = None
    max_context_tokens: int | None = None
    min_priority: int | None = None
    requests_per_minute: int | None = None
    requests_per_day: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    max_concurrent_requests: int | None = None
    tenant: str | None = None
    weight: float | None = None

    def opens(self, path: str) -> bool:
        """Whether the key may ask on this path."""
        return not self.routes or any(
            path.startswith(route[:-1]) if route.endswith("*") else path == route for route in self.routes
        )


NO_LIMITS = KeyLimits()
LIMIT_NAMES = tuple(field.name for field in fields(KeyLimits))
_LISTS = ("models", "routes")
_BOUNDS = dict.fromkeys(LIMIT_NAMES, (1, _MOST)) | {
    "max_context_tokens": (2, _MOST),
    "min_priority": (-MAX_PRIORITY, MAX_PRIORITY),
}


def limits_of(values: Mapping[str, Any], place: str) -> KeyLimits:
    """Checked limits. Raises ConfigError that begins with place and names the limit that is wrong."""
    return KeyLimits(**{name: _checked(name, value, place) for name, value in values.items()})


def _checked(name: str, value: Any, place: str) -> Any:
    if name not in LIMIT_NAMES:
        raise _error(f"{place}: there is no limit {name[:100]!r}{did_you_mean(name, LIMIT_NAMES)}")
    if name in _LISTS:
        if not isinstance(value, list) or len(value) > MAX_NAMES or not all(isinstance(word, str) and word for word in value):
            raise _error(f"{place}: {name} must be a list of at most {MAX_NAMES} texts")
        if name == "routes" and not all(word.startswith("/") for word in value):
            raise _error(f"{place}: a route begins with /, such as /v1/chat/completions or /v1/*")
        return tuple(value)
    if name == "tenant":
        if not isinstance(value, str) or not 0 < len(value) <= MAX_TENANT_LENGTH:
            raise _error(f"{place}: tenant must be a text of 1 to {MAX_TENANT_LENGTH} characters")
        return value
    if name == "weight":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.001 <= value <= 1000:
            raise _error(f"{place}: weight is {str(value)[:50]}; it must be a number from 0.001 to 1000")
        return float(value)
    low, high = _BOUNDS[name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _error(f"{place}: {name} is {str(value)[:50]}; it must be a whole number from {low} to {high}")
    return value


def _error(problem: str) -> ConfigError:
    return ConfigError(f"--api-keys {problem}", param="api_keys")
