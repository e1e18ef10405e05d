"""Gated activations and soft caps, element-wise in float32."""

from __future__ import annotations

import math

import numpy as np

from octavo.ops.arrays import F32


def silu_mul(gate_up: F32) -> F32:
    """silu(left half) * right half: [rows, 2 n] -> [rows, n]."""
    gate, up = _halves(gate_up)
    with np.errstate(over="ignore"):  # exp is infinite for very negative gates; the quotient is then 0, as it should be
        gated: F32 = gate / (1 + np.exp(-gate)) * up
    return gated


def gelu_mul(gate_up: F32) -> F32:
    """gelu(left half) * right half in the tanh form (Hendrycks and Gimpel, 2016): [rows, 2 n] -> [rows, n]."""
    gate, up = _halves(gate_up)
    inner = np.float32(math.sqrt(2 / math.pi)) * (gate + np.float32(0.044715) * gate * gate * gate)
    gated: F32 = 0.5 * gate * (1 + np.tanh(inner)) * up
    return gated


def gelu(x: F32) -> F32:
    """x / 2 * (1 + erf(x / sqrt(2))) (Hendrycks and Gimpel, 2016); numpy has no erf, so that it is taken value by value."""
    erf = np.fromiter((math.erf(value) for value in (x.ravel() * math.sqrt(0.5)).tolist()), np.float32, x.size)
    activated: F32 = np.float32(0.5) * x * (np.float32(1) + erf.reshape(x.shape))
    return activated


def softcap(x: F32, cap: float) -> F32:
    """cap * tanh(x / cap)."""
    capped: F32 = np.float32(cap) * np.tanh(x / np.float32(cap))
    return capped


def gate_rows(x: F32, gate: F32) -> F32:
    """x [rows, n] times sigmoid(gate [rows, 1])."""
    with np.errstate(over="ignore"):
        gated: F32 = x / (1 + np.exp(-gate))
    return gated


def _halves(gate_up: F32) -> tuple[F32, F32]:
    width = gate_up.shape[1] // 2
    return gate_up[:, :width], gate_up[:, width:]
