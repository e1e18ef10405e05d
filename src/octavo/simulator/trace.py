"""Trace: who asks for how much, and when; in columns, so that a million requests fit in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ConfigError

Shared = tuple[tuple[int, int], ...]
"""Beginning of a prompt that others may have in common: (content id, tokens) pairs. Equal pairs are equal tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests in order of arrival.

    Shapes: all arrays [num_requests].

    arrival_s    seconds since the first one, never falling
    num_prompt, num_output   tokens, at least 1
    tenant       index into tenants
    priority     lower is more urgent
    shared       per request, the shared beginning of its prompt; None when no prompt shares anything
    """

    name: str
    arrival_s: NDArray[np.float64]
    num_prompt: NDArray[np.int64]
    num_output: NDArray[np.int64]
    tenant: NDArray[np.int64]
    priority: NDArray[np.int64]
    tenants: tuple[str, ...] = ("",)
    shared: tuple[Shared, ...] | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def longest(self) -> int:
        """Prompt and output tokens of the longest request."""
        return int((self.num_prompt + self.num_output).max())

    def describe(self) -> str:
        span_s = float(self.arrival_s[-1])
        rate = f"{(len(self) - 1) / span_s:.3g} requests/s over {span_s:.0f} s" if span_s else "all at once"
        return (
            f"{self.name}: {len(self)} requests, {rate}; prompt {self.num_prompt.mean():.0f} tokens on average "
            f"(longest {self.num_prompt.max()}), output {self.num_output.mean():.0f} (longest {self.num_output.max()}), "
            f"{len(self.tenants)} tenant{'s' if len(self.tenants) > 1 else ''}"
        )


def make_trace(
    name: str,
    arrival_s: Sequence[float],
    num_prompt: Sequence[int],
    num_output: Sequence[int],
    *,
    tenant: Sequence[str] | None = None,
    priority: Sequence[int] | None = None,
    shared: Sequence[Shared] | None = None,
) -> Trace:
    """A trace from one value per request, in any order; arrivals are counted from the first. Raises ConfigError without any."""
    if not len(arrival_s):
        raise ConfigError(f"{name} holds no requests", param="trace")
    order = np.argsort(np.asarray(arrival_s, dtype=np.float64), kind="stable")
    arrivals = np.asarray(arrival_s, dtype=np.float64)[order]
    names = sorted(set(tenant)) if tenant is not None else [""]
    index_of = {tenant_name: index for index, tenant_name in enumerate(names)}
    indices = [index_of[tenant_name] for tenant_name in tenant] if tenant is not None else [0] * len(order)
    return Trace(
        name=name,
        arrival_s=arrivals - arrivals[0],
        num_prompt=np.asarray(num_prompt, dtype=np.int64)[order],
        num_output=np.asarray(num_output, dtype=np.int64)[order],
        tenant=np.asarray(indices, dtype=np.int64)[order],
        priority=np.asarray(priority if priority is not None else [0] * len(order), dtype=np.int64)[order],
        tenants=tuple(names),
        shared=tuple(shared[index] for index in order) if shared is not None and any(shared) else None,
    )


def scaled(trace: Trace, rate_scale: float) -> Trace:
    """The same requests, arriving rate_scale times as fast."""
    return replace(trace, arrival_s=trace.arrival_s / rate_scale) if rate_scale != 1.0 else trace


def first(trace: Trace, count: int) -> Trace:
    """The first `count` requests."""
    if count >= len(trace):
        return trace
    return replace(
        trace,
        arrival_s=trace.arrival_s[:count],
        num_prompt=trace.num_prompt[:count],
        num_output=trace.num_output[:count],
        tenant=trace.tenant[:count],
        priority=trace.priority[:count],
        shared=trace.shared[:count] if trace.shared is not None else None,
    )


def repeated(trace: Trace, count: int) -> Trace:
    """`count` requests: the trace again and again, the next round one mean gap after the last request.

    Every round has shared beginnings of its own: those of the round before are another population's.
    """
    rounds = -(-count // len(trace))
    if rounds == 1:
        return first(trace, count)
    period_s = float(trace.arrival_s[-1]) * len(trace) / max(1, len(trace) - 1)
    starts = np.repeat(np.arange(rounds) * period_s, len(trace))
    shared = None
    if trace.shared is not None:
        stride = 1 + max((content for pairs in trace.shared for content, _ in pairs), default=0)
        shared = tuple(
            tuple((content + turn * stride, tokens) for content, tokens in pairs)
            for turn in range(rounds)
            for pairs in trace.shared
        )
    whole = replace(
        trace,
        arrival_s=np.tile(trace.arrival_s, rounds) + starts,
        num_prompt=np.tile(trace.num_prompt, rounds),
        num_output=np.tile(trace.num_output, rounds),
        tenant=np.tile(trace.tenant, rounds),
        priority=np.tile(trace.priority, rounds),
        shared=shared,
    )
    return first(whole, count)
