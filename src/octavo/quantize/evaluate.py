"""evaluate: perplexity of one model path on a text, and how far it strays from another path over the same tokens."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.ops.arrays import F32
from octavo.quantize.windows import Window

F64 = NDArray[np.float64]
WindowReport = Callable[[int, float], None]
"""(tokens scored so far, their perplexity so far)."""


class LogitsSource(Protocol):
    """A path to be measured: `LogitsRunner`, see its `run`."""

    def run(self, window: Window) -> Iterator[tuple[int, F32]]: ...


@dataclass(frozen=True, slots=True)
class Perplexity:
    """losses  float64 [n]: -log p of each scored token, in nats
    seconds    spent computing, both paths of a comparison included
    """

    losses: F64
    seconds: float

    @property
    def num_tokens(self) -> int:
        return self.losses.size

    @property
    def value(self) -> float:
        return math.exp(float(self.losses.mean()))

    @property
    def standard_error(self) -> float:
        """Of `value`, as far as tokens are independent."""
        return self.value * _standard_error(self.losses)


@dataclass(frozen=True, slots=True)
class Divergence:
    """How a path differs from a reference path on the same tokens.

    reference_losses   float64 [n], as Perplexity.losses
    ratio              perplexity over the reference's
    ratio_error        its standard error, from the losses' differences token by token
    equal_top          share of positions where both give the same token the largest logit
    mean_kl            mean Kullback-Leibler divergence of the path's distribution from the reference's, in nats
    """

    reference_losses: F64
    ratio: float
    ratio_error: float
    equal_top: float
    mean_kl: float

    @property
    def reference_value(self) -> float:
        return math.exp(float(self.reference_losses.mean()))


def perplexity(runner: LogitsSource, windows: Sequence[Window], report: WindowReport) -> Perplexity:
    """Score every window; `report` hears after each slice. windows hold at least one scored token."""
    start_s = time.perf_counter()
    losses = _Losses(windows)
    for window in windows:
        for first, logits in runner.run(window):
            losses.add(_log_sum_exp(logits) - _chosen(logits, window, first))
            report(losses.count, losses.perplexity())
    return Perplexity(losses.values, time.perf_counter() - start_s)


def compare(
    runner: LogitsSource, reference: LogitsSource, windows: Sequence[Window], report: WindowReport
) -> tuple[Perplexity, Divergence]:
    """As `perplexity`, with both paths in lockstep: no logits are kept."""
    start_s = time.perf_counter()
    losses, reference_losses = _Losses(windows), _Losses(windows)
    num_equal, kl = 0, 0.0
    for window in windows:
        for (first, logits), (_, exact) in zip(runner.run(window), reference.run(window), strict=True):
            log_sum, exact_log_sum = _log_sum_exp(logits), _log_sum_exp(exact)
            losses.add(log_sum - _chosen(logits, window, first))
            reference_losses.add(exact_log_sum - _chosen(exact, window, first))
            num_equal += int((logits.argmax(axis=1) == exact.argmax(axis=1)).sum())
            kl += float(_divergence(exact, exact_log_sum, logits, log_sum).sum())
            report(losses.count, losses.perplexity())
    differences = losses.values - reference_losses.values
    ratio = math.exp(float(differences.mean()))
    divergence = Divergence(
        reference_losses=reference_losses.values,
        ratio=ratio,
        ratio_error=ratio * _standard_error(differences),
        equal_top=num_equal / losses.count,
        mean_kl=kl / losses.count,
    )
    return Perplexity(losses.values, time.perf_counter() - start_s), divergence


class _Losses:
    """An array that is filled from the front."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self.values: F64 = np.empty(sum(window.num_scored for window in windows), np.float64)
        self.count = 0
        self._total = 0.0

    def add(self, losses: F64) -> None:
        self.values[self.count : self.count + losses.size] = losses
        self.count += losses.size
        self._total += float(losses.sum())

    def perplexity(self) -> float:
        return math.exp(self._total / self.count)


def _chosen(logits: F32, window: Window, first: int) -> F64:
    """Logits of the tokens that really follow positions first.. -> [rows]."""
    rows = logits.shape[0]
    targets = np.array(window.token_ids[first + 1 : first + 1 + rows], np.int64)
    chosen: F64 = logits[np.arange(rows), targets].astype(np.float64)
    return chosen


def _log_sum_exp(logits: F32) -> F64:
    """log of the sum of exp along the rows; terms in float32, sums in float64."""
    largest = logits.max(axis=1, keepdims=True)
    total = np.exp(logits - largest).sum(axis=1, dtype=np.float64)
    result: F64 = largest[:, 0].astype(np.float64) + np.log(total)
    return result


def _divergence(exact: F32, exact_log_sum: F64, logits: F32, log_sum: F64) -> F64:
    """KL(exact || logits) of each row: the mean of log p - log q under p. Rounding can take a tiny one below 0."""
    probability = np.exp(exact - exact_log_sum[:, None].astype(np.float32))
    mean_difference = (probability * (exact - logits)).sum(axis=1, dtype=np.float64)
    kl: F64 = np.maximum(mean_difference - (exact_log_sum - log_sum), 0.0)
    return kl


def _standard_error(values: F64) -> float:
    return float(values.std(ddof=1)) / math.sqrt(values.size) if values.size > 1 else math.inf
