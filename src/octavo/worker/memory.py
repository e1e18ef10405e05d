"""How many bytes the KV cache takes."""

from __future__ import annotations

from octavo.config.model import ModelConfig

KV_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}
KV_SCALE_BYTES = {"int8": 4}
"""What a key or a value of one head takes besides its elements."""


def kv_block_bytes(model: ModelConfig, block_size: int, kv_dtype: str) -> int:
    """Bytes of one KV block over all layers, keys, values and their scales together. kv_dtype: a key of KV_DTYPE_BYTES."""
    vector_bytes = model.head_dim * KV_DTYPE_BYTES[kv_dtype] + KV_SCALE_BYTES.get(kv_dtype, 0)
    return 2 * model.num_layers * model.num_kv_heads * block_size * vector_bytes
