"""Summary: a simulation in figures, as a record for programs and as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ConfigError
from octavo.simulator.fleet import FleetSpec
from octavo.simulator.recorder import Recorder
from octavo.simulator.trace import Trace

F64 = NDArray[np.float64]
MAX_TENANT_ROWS = 20


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """One tenant's share. tokens_per_s: the mean speed its requests saw, output tokens per second from arrival to end."""

    tenant: str
    num_requests: int
    ttft_s: Latency
    e2e_s: Latency
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All figures of a simulation. Rates are per second of simulated time, from the first arrival to the last token.

    jain             fairness between tenants: Jain's index of the speeds their requests saw; 1 is equal, 1/n the worst
    prefix_hit_rate  prompt tokens found in the prefix cache, of all
    mean_kv_usage, peak_kv_usage   used blocks of all: mean over time and replicas, and the most on one replica
    """

    num_requests: int
    num_refused: int
    duration_s: float
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    ttft_s: Latency
    itl_s: Latency
    tpot_s: Latency
    e2e_s: Latency
    jain: float
    num_preemptions: int
    prefix_hit_rate: float
    mean_kv_usage: float
    peak_kv_usage: float
    num_steps: int
    tenants: tuple[TenantFigures, ...]


def summarize(trace: Trace, spec: FleetSpec, recorder: Recorder) -> Summary:
    """Raises ConfigError when every request was refused."""
    finish_s = np.asarray(recorder.finish_s)
    done = ~np.isnan(finish_s)
    if not done.any():
        raise ConfigError(
            f"all {len(trace)} requests are longer than --max-model-len {spec.engine.max_model_len}", param="max_model_len"
        )
    arrival_s, first_s = np.asarray(recorder.arrival_s)[done], np.asarray(recorder.first_token_s)[done]
    finish_s, num_output = finish_s[done], trace.num_output[done]
    ttft_s, e2e_s = first_s - arrival_s, finish_s - arrival_s
    tpot_s = (finish_s - first_s)[num_output > 1] / (num_output[num_output > 1] - 1)
    duration_s = float(finish_s.max() - arrival_s.min())
    tenants = _tenants(trace, done, ttft_s, e2e_s)
    speeds = np.asarray([tenant.tokens_per_s for tenant in tenants])
    used = recorder.timeline.series(recorder.end_s).used_blocks
    itl = recorder.itl
    return Summary(
        num_requests=int(done.sum()),
        num_refused=recorder.num_refused,
        duration_s=duration_s,
        requests_per_s=float(done.sum()) / duration_s,
        output_tokens_per_s=float(num_output.sum()) / duration_s,
        total_tokens_per_s=float((num_output + trace.num_prompt[done]).sum()) / duration_s,
        ttft_s=_latency(ttft_s),
        itl_s=Latency(itl.mean_s, itl.percentile(50), itl.percentile(90), itl.percentile(99)),
        tpot_s=_latency(tpot_s),
        e2e_s=_latency(e2e_s),
        jain=jain_index(speeds),
        num_preemptions=recorder.num_preemptions,
        prefix_hit_rate=recorder.cached_tokens / max(1, recorder.prompt_tokens),
        mean_kv_usage=float(used.mean()) / (spec.engine.num_blocks * spec.num_replicas),
        peak_kv_usage=recorder.peak_used_blocks / spec.engine.num_blocks,
        num_steps=recorder.num_steps,
        tenants=tenants if len(trace.tenants) > 1 else (),
    )


def jain_index(values: F64) -> float:
    """(sum x)^2 / (n sum x^2). Source: Jain, Chiu and Hawe, DEC research report 301, 1984."""
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def _tenants(trace: Trace, done: NDArray[np.bool_], ttft_s: F64, e2e_s: F64) -> tuple[TenantFigures, ...]:
    tenant, num_output = trace.tenant[done], trace.num_output[done]
    figures = []
    for index, name in enumerate(trace.tenants):
        mine = tenant == index
        if mine.any():
            speed = float((num_output[mine] / e2e_s[mine]).mean())
            figures.append(TenantFigures(name, int(mine.sum()), _latency(ttft_s[mine]), _latency(e2e_s[mine]), speed))
    return tuple(figures)


def _latency(values_s: F64) -> Latency:
    if not len(values_s):
        return Latency(0.0, 0.0, 0.0, 0.0)
    p50, p90, p99 = (float(value) for value in np.percentile(values_s, (50, 90, 99)))
    return Latency(float(values_s.mean()), p50, p90, p99)


def table(summary: Summary) -> str:
    """The summary as text."""
    refused = f" ({summary.num_refused} refused: longer than the context)" if summary.num_refused else ""
    lines = [
        f"requests        {summary.num_requests}{refused} in {summary.duration_s:.1f} s",
        f"throughput      {summary.requests_per_s:.3g} requests/s, {summary.output_tokens_per_s:.1f} output tokens/s, "
        f"{summary.total_tokens_per_s:.1f} tokens/s",
        "",
        f"{'':<16}{'mean':>12}{'p50':>12}{'p90':>12}{'p99':>12}",
        _row("TTFT (s)", summary.ttft_s, 1.0),
        _row("ITL (ms)", summary.itl_s, 1e3),
        _row("TPOT (ms)", summary.tpot_s, 1e3),
        _row("E2E (s)", summary.e2e_s, 1.0),
        "",
        f"KV cache        {summary.mean_kv_usage:.1%} used on average, {summary.peak_kv_usage:.1%} at most",
        f"prefix hits     {summary.prefix_hit_rate:.1%} of prompt tokens",
        f"preemptions     {summary.num_preemptions}",
        f"steps           {summary.num_steps}",
    ]
    if summary.tenants:
        lines += [f"fairness        {summary.jain:.3f} (Jain's index over {len(summary.tenants)} tenants)", ""]
        lines += _tenant_rows(summary.tenants)
    return "\n".join(lines)


def _row(name: str, latency: Latency, scale: float) -> str:
    values = (latency.mean, latency.p50, latency.p90, latency.p99)
    return f"{name:<16}" + "".join(f"{value * scale:>12.3f}" for value in values)


def _tenant_rows(tenants: Sequence[TenantFigures]) -> list[str]:
    head = f"{'tenant':<24}{'requests':>10}{'TTFT p50 (s)':>14}{'TTFT p99 (s)':>14}{'E2E p99 (s)':>14}{'tokens/s':>12}"
    shown = sorted(tenants, key=lambda tenant: -tenant.num_requests)[:MAX_TENANT_ROWS]
    rows = [
        f"{tenant.tenant[:23]:<24}{tenant.num_requests:>10}{tenant.ttft_s.p50:>14.3f}{tenant.ttft_s.p99:>14.3f}"
        f"{tenant.e2e_s.p99:>14.3f}{tenant.tokens_per_s:>12.2f}"
        for tenant in shown
    ]
    more = [f"... and {len(tenants) - len(shown)} more"] if len(tenants) > len(shown) else []
    return [head, *rows, *more]
