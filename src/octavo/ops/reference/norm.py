"""Normalisation."""

from __future__ import annotations

import numpy as np

from octavo.ops.arrays import F32


def layer_norm(x: F32, weight: F32, bias: F32, eps: float) -> F32:
    """Each row of x [rows, n] to mean 0 and variance 1, then times weight plus bias. Source: Ba, Kiros and Hinton, 2016."""
    centered = x - np.mean(x, axis=-1, keepdims=True, dtype=np.float32)
    variance: F32 = np.mean(np.square(centered), axis=-1, keepdims=True, dtype=np.float32)
    normed: F32 = centered * (np.float32(1.0) / np.sqrt(variance + np.float32(eps))) * weight + bias
    return normed


def rms_norm(x: F32, weight: F32, eps: float) -> F32:
    """Scale each group of len(weight) columns of x [rows, groups * len(weight)] to unit root mean square, then by weight.

    Source: Zhang and Sennrich, 2019.
    """
    grouped = x.reshape(x.shape[0], x.shape[1] // weight.size, weight.size)
    mean_square: F32 = np.mean(np.square(grouped), axis=-1, keepdims=True, dtype=np.float32)
    scaled: F32 = grouped * (np.float32(1.0) / np.sqrt(mean_square + np.float32(eps))) * weight
    return scaled.reshape(x.shape)
