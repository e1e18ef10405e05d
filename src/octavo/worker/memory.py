"""How many bytes the KV cache takes."""

from __future__ import annotations

from octavo.config.model import ModelConfig
from octavo.errors import ConfigError

KV_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def resolve_kv_dtype(kv_cache_dtype: str) -> str:
    """ "auto" is float32. Raises: ConfigError for an unknown name."""
    dtype = "float32" if kv_cache_dtype == "auto" else kv_cache_dtype
    if dtype not in KV_DTYPE_BYTES:
        known = ", ".join(KV_DTYPE_BYTES)
        raise ConfigError(f"kv_cache_dtype is {kv_cache_dtype!r}; known: auto, {known}", param="kv_cache_dtype")
    return dtype


def kv_block_bytes(model: ModelConfig, block_size: int, kv_dtype: str) -> int:
    """Bytes of one KV block over all layers, keys and values together. Raises: as resolve_kv_dtype."""
    values_per_token = 2 * model.num_layers * model.num_kv_heads * model.head_dim
    return values_per_token * block_size * KV_DTYPE_BYTES[resolve_kv_dtype(kv_dtype)]
