"""pooling_in_force: how the model's prompts are pooled, from its files and --pooler-config."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from octavo.config.loading import LoadingConfig
from octavo.config.model import PoolingConfig
from octavo.errors import ConfigError
from octavo.pooling_params import POOLING_KINDS, PoolingKind

_KIND_KEYS = ("pooling_type", "seq_pooling_type")
_NORMALIZE_KEYS = ("normalize", "use_activation")
_KINDS: dict[str, PoolingKind] = {kind.upper(): kind for kind in POOLING_KINDS}


def pooling_in_force(loading: LoadingConfig, pooling: PoolingConfig) -> PoolingConfig:
    """What the model's files say, with --pooler-config over it. Raises: ConfigError naming the flag."""
    if loading.pooler_config is None:
        return pooling
    for key, value in _read(loading.pooler_config).items():
        if value is None:
            continue
        if key in _KIND_KEYS:
            kind = _KINDS.get(value.upper()) if isinstance(value, str) else None
            if kind is None:
                raise _error(f"{key} is {str(value)[:100]!r}; known: {', '.join(_KINDS)}")
            pooling = replace(pooling, kind=kind)
        elif key in _NORMALIZE_KEYS:
            if not isinstance(value, bool):
                raise _error(f"{key} is {str(value)[:100]!r}; it must be true or false")
            pooling = replace(pooling, normalize=value)
        else:
            raise _error(f"it has the key {key[:100]!r}; known: {', '.join((*_KIND_KEYS, *_NORMALIZE_KEYS))}")
    return pooling


def _read(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise _error(f"it is {text[:100]!r}; it must be a JSON object")
    return values


def _error(message: str) -> ConfigError:
    return ConfigError(f"--pooler-config: {message}", param="pooler_config")
