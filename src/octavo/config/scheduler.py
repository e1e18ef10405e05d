"""SchedulerConfig: the budgets of one step and the order of the waiting queue."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    max_num_seqs: int = option(64, "Most sequences in one step.", low=1, high=4096)
    # 256 costs no more processor time per token than 512 (763 and 701 tokens per CPU second on the default model, 2 cores), and
    # the longest step is half as long: so are the pauses of running answers, and the time until an abort takes effect.
    max_num_batched_tokens: int = option(
        256, "Most tokens computed in one step, decodes and prefill chunks together.", low=1, high=65536
    )
    chunked_prefill_size: int = option(256, "Most prompt tokens of one sequence computed in one step.", low=1, high=65536)
    max_model_len: int | None = option(
        None,
        "Longest prompt plus output in tokens. Default: the model's context, or what the KV cache can hold if less.",
        low=1,
        high=2**24,
    )
    scheduler_policy: str = option("fcfs", "Order of the waiting queue.", choices=("fcfs",))
    preemption_mode: str = option(
        "auto",
        "What becomes of the KV blocks of a sequence that has to give way: moved to the swap space and back (swap), computed "
        "again (recompute), or whichever costs less by what was measured (auto).",
        choices=("auto", "recompute", "swap"),
    )
    auto_tune: bool = option(
        False,
        "Turn max_num_seqs, chunked_prefill_size and block_size by rule while requests run, within bounds. Every change is"
        " logged; no byte of an answer changes.",
    )
    max_num_queued_requests: int = option(2048, "Requests waiting beyond this are refused with 429.", low=1, high=1_000_000)
