"""What every answer of Ollama's API says: when it was made, how many tokens it took, how long, in nanoseconds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import msgspec

from octavo.server.service.generation import Generation

encode = msgspec.json.encode


def rfc3339(moment_s: float | None = None) -> str:
    """A moment in seconds since the epoch, by default now, as Ollama writes it."""
    moment = datetime.now(timezone.utc) if moment_s is None else datetime.fromtimestamp(moment_s, timezone.utc)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(slots=True)
class Clock:
    """When a request came, on the monotonic clock; what its answer says of its times."""

    start_s: float = field(default_factory=time.monotonic)

    def elapsed_ns(self) -> int:
        return _ns(time.monotonic() - self.start_s)

    def end(self, generation: Generation, finish_reason: str | None) -> dict[str, Any]:
        """The keys of the last object. load_duration is the time before the first step: reading the request, and waiting."""
        now_s, record = time.monotonic(), generation.record
        first_s = last_s = scheduled_s = now_s
        if record is not None and record.scheduled_s is not None:
            scheduled_s = record.scheduled_s
            first_s = last_s = record.first_token_s or now_s
            last_s = record.last_token_s or last_s
        return {
            "done": True,
            "done_reason": "length" if finish_reason == "length" else "stop",
            "total_duration": _ns(now_s - self.start_s),
            "load_duration": _ns(scheduled_s - self.start_s),
            "prompt_eval_count": generation.usage.prompt_tokens,
            "prompt_eval_duration": _ns(first_s - scheduled_s),
            "eval_count": generation.usage.completion_tokens,
            "eval_duration": _ns(last_s - first_s),
        }


def _ns(seconds: float) -> int:
    return max(0, round(seconds * 1e9))
