"""SchedulerConfig: the budgets of one step and the order of the waiting queue."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.option import option

PRIORITY_POLICIES = frozenset({"priority"})
"""Values of scheduler_policy that read the priority of a request. Under the others, a request that brings one is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    max_num_seqs: int = option(64, "Most sequences in one step.", low=1, high=4096)
    # 16 clients on the default model, 2 cores: 1,094, 1,087 and 1,086 tokens/s at 256, 128 and 96, while the p99 of the gaps
    # between tokens is 7.0, 3.9 and 2.7 times their median. Smaller steps also let an abort take effect sooner.
    max_num_batched_tokens: int = option(
        96, "Most tokens computed in one step, decodes and prefill chunks together.", low=1, high=65536, human=True
    )
    chunked_prefill_size: int = option(
        96, "Most prompt tokens of one sequence computed in one step.", low=1, high=65536, human=True
    )
    max_model_len: int | None = option(
        None,
        "Longest prompt plus output in tokens. Default: the model's context, or what the KV cache can hold if less.",
        low=1,
        high=2**24,
        synonyms={"auto": None, -1: None, "-1": None},
        human=True,
    )
    target_itl: float | None = option(
        None,
        "Inter-token latency to hold, in milliseconds: prefill shares are sized by the measured step times so that a step with"
        " decodes takes no longer. Without it --chunked-prefill-size rules.",
        low=0.1,
        high=60_000,
        metavar="MS",
    )
    scheduler_policy: str = option(
        "fcfs",
        "Who is served first: first come, shortest expected job, lowest priority number, or least served tenant.",
        choices=("fcfs", "sjf", "priority", "fair"),
    )
    max_wait: float = option(
        60.0,
        "Seconds after which a request goes before all later ones, whatever the policy says.",
        low=0,
        high=86400,
        metavar="SECONDS",
    )
    tenant_weights: str | None = option(
        None,
        "Shares of tenants under the policy fair, as NAME=WEIGHT,...; tenants not named have weight 1.",
        metavar="NAME=W,...",
    )
    admission: str = option(
        "optimistic",
        "What running requests are counted with when one more is admitted: the length their kind usually has; guaranteed:"
        " their max_tokens, so that none is ever preempted for want of KV blocks; eager: what they have now.",
        choices=("optimistic", "guaranteed", "eager"),
    )
    preemption_mode: str = option(
        "auto",
        "What becomes of the KV blocks of a sequence that has to give way: moved to the swap space and back (swap), computed "
        "again (recompute), or whichever costs less by what was measured (auto).",
        choices=("auto", "recompute", "swap"),
    )
    auto_tune: bool = option(
        False,
        "Turn step sizes, admission, preemption mode and block size by rule while requests run: throughput while requests wait,"
        " back to what was configured when it is calm. Every change is logged; no byte of an answer changes.",
    )
    speculative_config: str | None = option(
        None,
        'Guesses of the next tokens, verified several in one step, as JSON: {"method": "ngram", "num_speculative_tokens": 8}.'
        " No byte of an answer changes.",
        metavar="JSON",
    )
    max_num_queued_requests: int = option(
        2048, "Waiting sequences (n for each prompt) beyond which requests are refused with 429.", low=1, high=1_000_000
    )
    max_num_queued_tokens: int | None = option(
        None, "Requests are refused with 429 while the waiting ones have more prompt tokens than this.", low=1, high=2**31 - 1
    )
    queue_timeout: float | None = option(
        None, "Requests that no step has touched after this many seconds get 429.", low=0.001, high=86400, metavar="SECONDS"
    )
