"""Rotary position embedding."""

from __future__ import annotations

import numpy as np

from octavo.ops.arrays import F32, I32


def rope(x: F32, cosines: F32, sines: F32, positions: I32, head_dim: int) -> F32:
    """Rotate pairs (i, i + rotary_dim / 2) of each head of x [rows, heads * head_dim].

    cosines, sines: [max_position, rotary_dim / 2]. Dimensions beyond rotary_dim pass through. Source: Su et al., 2021.
    """
    half = cosines.shape[1]
    heads = x.reshape(x.shape[0], -1, head_dim)
    cos, sin = cosines[positions][:, None, :], sines[positions][:, None, :]
    first, second = heads[..., :half], heads[..., half : 2 * half]
    out = np.array(heads)
    out[..., :half] = first * cos - second * sin
    out[..., half : 2 * half] = second * cos + first * sin
    return out.reshape(x.shape)
