"""Mixture of experts, row by row: routes, the rows of each expert, their sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.ops.arrays import F32, I64
from octavo.ops.reference.linear import DenseWeight, linear


def route(logits: F32, top_k: int, renormalise: bool) -> F32:
    """As Ops.route: [rows, experts] -> [rows, 2 * top_k]."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights = powers / powers.sum(axis=1, keepdims=True)
    experts = np.argsort(-logits, axis=1, kind="stable")[:, :top_k]
    chosen = np.take_along_axis(weights, experts, axis=1)
    if renormalise:
        chosen = chosen / chosen.sum(axis=1, keepdims=True)
    return np.concatenate([experts.astype(np.float32), chosen], axis=1)


def dispatch(x: F32, routes: F32) -> F32:
    """As Ops.dispatch: [rows, n] -> [rows * top_k, n]."""
    experts = _experts_of(routes)
    dispatched: F32 = x[_order(experts) // experts.shape[1]]
    return dispatched


def experts(x: F32, weights: Sequence[DenseWeight], routes: F32) -> F32:
    """As Ops.experts: [rows * top_k, in] -> [rows * top_k, out]."""
    chosen = _experts_of(routes)
    in_order = chosen.ravel()[_order(chosen)]
    rows = [linear(x[row : row + 1], weights[expert]) for row, expert in enumerate(in_order)]
    return np.concatenate(rows) if rows else np.zeros((0, weights[0].values.shape[0]), np.float32)


def combine(x: F32, routes: F32) -> F32:
    """As Ops.combine: [rows * top_k, n] -> [rows, n]."""
    chosen = _experts_of(routes)
    rows, top_k = chosen.shape
    place = np.empty(rows * top_k, np.int64)
    place[_order(chosen)] = np.arange(rows * top_k)
    total = np.zeros((rows, x.shape[1]), np.float32)
    for slot in range(top_k):
        total += routes[:, top_k + slot, None] * x[place.reshape(rows, top_k)[:, slot]]
    return total


def _experts_of(routes: F32) -> I64:
    """[rows, top_k]"""
    return routes[:, : routes.shape[1] // 2].astype(np.int64)


def _order(experts: I64) -> I64:
    """Entries (row, slot), counted through, sorted by expert, then row: int64 [rows * top_k]."""
    order: I64 = np.argsort(experts.ravel(), kind="stable")
    return order
