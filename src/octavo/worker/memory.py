"""How many bytes the KV cache takes."""

from __future__ import annotations

from octavo.config.model import ModelConfig
from octavo.errors import ConfigError

KV_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}
KV_SCALE_BYTES = {"int8": 4}
"""What a key or a value of one head takes besides its elements."""


def resolve_kv_dtype(kv_cache_dtype: str) -> str:
    """ "auto" is float32. Raises: ConfigError for an unknown name."""
    dtype = "float32" if kv_cache_dtype == "auto" else kv_cache_dtype
    if dtype not in KV_DTYPE_BYTES:
        known = ", ".join(KV_DTYPE_BYTES)
        raise ConfigError(f"kv_cache_dtype is {kv_cache_dtype!r}; known: auto, {known}", param="kv_cache_dtype")
    return dtype


def kv_block_bytes(model: ModelConfig, block_size: int, kv_dtype: str) -> int:
    """Bytes of one KV block over all layers, keys, values and their scales together. Raises: as resolve_kv_dtype."""
    dtype = resolve_kv_dtype(kv_dtype)
    vector_bytes = model.head_dim * KV_DTYPE_BYTES[dtype] + KV_SCALE_BYTES.get(dtype, 0)
    return 2 * model.num_layers * model.num_kv_heads * block_size * vector_bytes
