"""Overload: when a new request is turned away, and for how long."""

from __future__ import annotations

from octavo.config.scheduler import SchedulerConfig
from octavo.engine.frontend.ledger import Ledger, ShedReason
from octavo.errors import OverloadedError

MAX_RETRY_AFTER_S = 120.0
DEFAULT_RETRY_AFTER_S = 5.0
"""Advice while nothing has finished lately, so that no rate is known."""


def retry_after_s(ledger: Ledger, num_waiting: int, now_s: float) -> float:
    """Seconds until those that wait now will have been served at the rate of the last minute."""
    rate = ledger.drain_rate(now_s)
    return min(MAX_RETRY_AFTER_S, max(1.0, num_waiting / rate)) if rate > 0.0 else DEFAULT_RETRY_AFTER_S


def check_queue(
    ledger: Ledger, config: SchedulerConfig, tenant: str, num_prompt_tokens: int, num_choices: int, now_s: float
) -> None:
    """Raise OverloadedError, and note it, when the queue has no room for a request with so many prompt tokens (0: not known)
    and choices. Each choice is a sequence of its own, and takes a seat of its own.

    What can start at once does not wait, and is never refused; a request that is larger than a limit by itself is not either
    while nobody waits.
    """
    num_waiting = ledger.num_waiting(config.max_num_seqs)
    max_tokens = config.max_num_queued_tokens
    if num_waiting and num_waiting + num_choices > config.max_num_queued_requests:
        reason = ShedReason.QUEUE_REQUESTS
        problem = (
            f"{num_waiting} sequences wait, this request has {num_choices} and the limit is {config.max_num_queued_requests} "
            "(--max-num-queued-requests; n of them for each prompt)"
        )
    elif max_tokens is not None and num_waiting and ledger.num_queued_tokens + num_prompt_tokens > max_tokens:
        reason = ShedReason.QUEUE_TOKENS
        problem = (
            f"requests with {ledger.num_queued_tokens} prompt tokens wait; this one would exceed the limit of {max_tokens} "
            "(--max-num-queued-tokens)"
        )
    else:
        return
    ledger.shed(tenant, reason)
    raise OverloadedError(f"{problem}; try again later", retry_after_s=retry_after_s(ledger, num_waiting, now_s))
