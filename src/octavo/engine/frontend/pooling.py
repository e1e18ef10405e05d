"""What is made of a pooled vector, and of a prompt that is too long for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.config.model import PoolingConfig
from octavo.pooling_params import PoolingParams


@dataclass(frozen=True, slots=True)
class EmbeddingForm:
    """dimensions: how many numbers are kept, None all; unit_length: what is kept is then divided by its length."""

    dimensions: int | None
    unit_length: bool

    @classmethod
    def of(cls, params: PoolingParams, pooling: PoolingConfig) -> EmbeddingForm:
        wanted = params.wants_unit_length
        return cls(params.dimensions, pooling.normalize if wanted is None else wanted)

    def apply(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """vector float32 [n] -> [dimensions]; one of length 0 stays as it is."""
        kept = vector[: self.dimensions]
        length = vector_length(kept) if self.unit_length else 0.0
        return (kept.astype(np.float64) / length).astype(np.float32) if length > 0.0 else kept

    def apply_to(self, data: bytes) -> NDArray[np.float32]:
        """The same for the bytes of step.PooledVector."""
        return self.apply(np.frombuffer(data, "<f4"))


def vector_length(vector: NDArray[np.float32]) -> float:
    """Euclidean length, summed in float64."""
    return float(np.sqrt(np.sum(np.square(vector, dtype=np.float64))))


def cosine(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Of the angle between two vectors, -1 to 1; 0 if one of them has length 0."""
    lengths = vector_length(a) * vector_length(b)
    product = float(np.sum(np.multiply(a, b, dtype=np.float64)))
    return max(-1.0, min(1.0, product / lengths)) if lengths > 0.0 else 0.0


def truncated(token_ids: list[int], limit: int, suffix: Sequence[int]) -> list[int]:
    """The first `limit` tokens. The suffix that the tokenizer puts behind a text stays behind what is left of it."""
    if len(token_ids) <= limit:
        return token_ids
    has_suffix = 0 < len(suffix) < limit and token_ids[len(token_ids) - len(suffix) :] == list(suffix)
    kept = token_ids[: limit - len(suffix)] if has_suffix else token_ids[:limit]
    return kept + list(suffix) if has_suffix else kept
