"""Metrics: what Prometheus scrapes. Names follow vLLM, with the prefix `octavo:`; every figure is read from the ledger.

Gauges and counters are read at the moment of the scrape, so they cannot go stale; only histograms listen to entries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from octavo.engine.frontend.ledger import Ledger, RequestRecord
from octavo.sequence import FinishReason

_LATENCY_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0)
_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0)
_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)

_HISTOGRAMS: tuple[tuple[str, str, tuple[float, ...]], ...] = (
    ("time_to_first_token_seconds", "From arrival to the first token.", _TTFT_S),
    ("request_time_per_output_token_seconds", "Mean time per token after the first, per finished request.", _TOKEN_S),
    ("e2e_request_latency_seconds", "From arrival to the end.", _LATENCY_S),
    ("request_queue_time_seconds", "From arrival to the first step.", _LATENCY_S),
    ("request_prefill_time_seconds", "From the first step to the first token.", _LATENCY_S),
    ("request_decode_time_seconds", "From the first token to the last.", _LATENCY_S),
    ("request_inference_time_seconds", "From the first step to the last token.", _LATENCY_S),
    ("request_prompt_tokens", "Prompt tokens per finished request.", _COUNTS),
    ("request_generation_tokens", "Generated tokens per finished request, all choices.", _COUNTS),
    ("request_params_n", "Choices asked for.", (1, 2, 5, 10, 20)),
    ("request_params_max_tokens", "max_tokens asked for, or what the context left.", _COUNTS),
)


_TENANT_COUNTERS = (
    ("requests", "Requests taken from the tenant."),
    ("prompt_tokens", "Prompt tokens computed for the tenant."),
    ("cached_tokens", "Prompt tokens of the tenant found in the prefix cache."),
    ("generation_tokens", "Tokens generated for the tenant."),
    ("shed", "Requests of the tenant turned away with 429."),
)


class Metrics:
    """A ledger's figures in a registry of their own: two engines in one process do not share counters.

    A listener of the ledger; hand `registry` to prometheus_client's exposition.
    """

    def __init__(self, ledger: Ledger, model_name: str) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._histograms = {
            name: Histogram(f"octavo:{name}", help_text, ["model_name"], buckets=buckets, registry=self.registry).labels(
                model_name
            )
            for name, help_text, buckets in _HISTOGRAMS
        }
        self._inter_token = _TokenIntervals(model_name)
        self.registry.register(self._inter_token)
        self.registry.register(_LedgerCollector(ledger, model_name))
        ledger.add_listener(self)

    def tokens(self, record: RequestRecord, interval_s: float | None) -> None:
        if interval_s is None:
            self._observe("time_to_first_token_seconds", record.arrival_s, record.first_token_s)
        elif interval_s > 0.0:  # 0: another choice of the same request, in the same step
            self._inter_token.observe(interval_s)

    def finished(self, record: RequestRecord) -> None:
        self._observe("e2e_request_latency_seconds", record.arrival_s, record.finished_s)
        self._observe("request_queue_time_seconds", record.arrival_s, record.scheduled_s)
        self._observe("request_prefill_time_seconds", record.scheduled_s, record.first_token_s)
        self._observe("request_decode_time_seconds", record.first_token_s, record.last_token_s)
        self._observe("request_inference_time_seconds", record.scheduled_s, record.last_token_s)
        num_later = record.num_generated_tokens - record.num_choices
        if num_later > 0 and record.first_token_s is not None and record.last_token_s is not None:
            per_token_s = (record.last_token_s - record.first_token_s) * record.num_choices / num_later
            self._histograms["request_time_per_output_token_seconds"].observe(per_token_s)
        self._histograms["request_prompt_tokens"].observe(record.num_prompt_tokens)
        if not record.max_tokens:
            return  # an embedding: nothing was to be generated
        self._histograms["request_generation_tokens"].observe(record.num_generated_tokens)
        self._histograms["request_params_n"].observe(record.num_choices)
        self._histograms["request_params_max_tokens"].observe(record.max_tokens)

    def _observe(self, name: str, from_s: float | None, to_s: float | None) -> None:
        if from_s is not None and to_s is not None:
            self._histograms[name].observe(max(0.0, to_s - from_s))


class _TokenIntervals(Collector):
    """The histogram inter_token_latency_seconds. It is added to with every token. So, unlike prometheus_client's, it takes no
    lock, and sums up the buckets only when it is scraped."""

    def __init__(self, model_name: str) -> None:
        self._labels = [model_name]
        self._counts = [0] * (len(_TOKEN_S) + 1)
        """By bucket; those beyond the last bound come last."""
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(_TOKEN_S, seconds)] += 1
        self._sum_s += seconds

    def collect(self) -> Iterable[Metric]:
        bounds = [*map(str, _TOKEN_S), "+Inf"]
        family = HistogramMetricFamily(
            "octavo:inter_token_latency_seconds", "Between two deliveries of tokens of one request.", labels=["model_name"]
        )
        family.add_metric(self._labels, list(zip(bounds, accumulate(self._counts), strict=True)), self._sum_s)
        yield family


class _LedgerCollector(Collector):
    """Reads gauges and counters off the ledger when a scrape asks."""

    def __init__(self, ledger: Ledger, model_name: str) -> None:
        self._ledger = ledger
        self._labels = [model_name]

    def collect(self) -> Iterable[Metric]:
        ledger, totals, core = self._ledger, self._ledger.totals, self._ledger.core
        yield self._gauge(
            "num_requests_running", "Requests that a step has touched and that have not ended.", ledger.num_running
        )
        yield self._gauge("num_requests_waiting", "Requests that no step has touched yet.", ledger.num_queued)
        usage = core.num_used_blocks / core.num_blocks if core.num_blocks else 0.0
        yield self._gauge("kv_cache_usage_perc", "KV blocks in use, 1 is all of them.", usage)
        yield self._counter(
            "prompt_tokens", "Prompt tokens of requests that reached their first token, or embedding.", totals.prompt_tokens
        )
        yield self._counter("generation_tokens", "Tokens generated and delivered.", totals.generation_tokens)
        yield self._counter("num_preemptions", "Sequences preempted.", totals.preemptions)
        yield self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", totals.prefix_queries)
        yield self._counter("prefix_cache_hits", "Prompt tokens found there.", totals.prefix_hits)
        running = totals.prefix_hits - totals.prefix_hits_freed - totals.prefix_hits_swapped
        by_source = {"running": running, "freed": totals.prefix_hits_freed, "swapped": totals.prefix_hits_swapped}
        yield self._counters("prefix_cache_hits_by_source", "Prompt tokens found, by where they lay.", "source", by_source)
        by_mode = {"swap": totals.swap_preemptions, "recompute": totals.preemptions - totals.swap_preemptions}
        yield self._counters("preemptions_by_mode", "Sequences preempted, by what became of their blocks.", "mode", by_mode)
        yield self._gauge(
            "num_swapped_blocks", "Blocks of preempted or waiting sequences in the swap space.", core.num_swapped_blocks
        )
        yield self._counter("swap_out_bytes", "Bytes moved to the swap space.", totals.swap_out_bytes)
        yield self._counter("swap_in_bytes", "Bytes moved back from it.", totals.swap_in_bytes)
        yield self._counter("swap_failures", "Blocks that could not be moved; they were computed again.", totals.swap_failures)
        yield self._gauge(
            "num_queued_tokens", "Prompt tokens of requests that no step has touched yet.", ledger.num_queued_tokens
        )
        yield from self._shed()
        yield from self._tenants()
        yield self._counter("num_steps", "Steps computed.", totals.steps)
        yield self._counter("step_time_seconds", "Seconds spent in steps.", totals.busy_s)
        yield self._counter("num_reconfigurations", "Times settings changed while the engine ran.", totals.reconfigurations)
        yield self._counter("num_auto_tunings", "Those of them that --auto-tune made.", totals.tunings)
        yield from self._drafts()
        yield self._counter("engine_restarts", "Times the engine core was lost.", totals.core_restarts)
        by_reason = {reason.value: totals.finished[reason] for reason in FinishReason}
        yield self._counters("request_success", "Requests that ended, by reason.", "finished_reason", by_reason)

    def _drafts(self) -> Iterable[Metric]:
        totals = self._ledger.totals
        yield self._counter("spec_decode_num_drafts", "Times that guesses were verified for a sequence.", totals.drafts)
        yield self._counter("spec_decode_num_draft_tokens", "Guesses that were verified.", totals.draft_tokens)
        yield self._counter("spec_decode_num_accepted_tokens", "Guesses that became tokens.", sum(totals.accepted_at))
        by_place = {str(place): count for place, count in enumerate(totals.accepted_at)}
        yield self._counters(
            "spec_decode_num_accepted_tokens_per_pos", "The same by place behind the last token.", "position", by_place
        )

    def _shed(self) -> Iterable[Metric]:
        family = CounterMetricFamily(
            "octavo:num_requests_shed", "Requests turned away with 429, by reason.", labels=["model_name", "reason"]
        )
        for reason, count in self._ledger.totals.shed.items():
            family.add_metric([*self._labels, reason.value], count)
        yield family

    def _tenants(self) -> Iterable[Metric]:
        """What each tenant was given. Tenants beyond the first hundred share one label."""
        tenants = self._ledger.tenants.items()
        for name, help_text in _TENANT_COUNTERS:
            family = CounterMetricFamily(f"octavo:tenant_{name}", help_text, labels=["model_name", "tenant"])
            for tenant, totals in tenants:
                family.add_metric([*self._labels, tenant], getattr(totals, name))
            yield family

    def _gauge(self, name: str, help_text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"octavo:{name}", help_text, labels=["model_name"])
        family.add_metric(self._labels, value)
        return family

    def _counters(self, name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
        """One counter with a value for each word of a label."""
        family = CounterMetricFamily(f"octavo:{name}", help_text, labels=["model_name", label])
        for word, value in values.items():
            family.add_metric([*self._labels, word], value)
        return family

    def _counter(self, name: str, help_text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"octavo:{name}", help_text, labels=["model_name"])
        family.add_metric(self._labels, value)
        return family
