"""DraftCounts: what speculative decoding did in a run, in the words of `vllm bench serve`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

_LINE = re.compile(r'^(?:octavo|vllm):spec_decode_(\w+)_total(?:\{(?:.*?position="(\d+)")?[^}]*\})? (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """num_drafts: times that guesses were verified; accepted_at: accepted guesses by their place behind the last token."""

    num_drafts: int = 0
    num_draft_tokens: int = 0
    accepted_at: Sequence[int] = field(default_factory=tuple)

    @classmethod
    def read(cls, metrics: str) -> DraftCounts:
        """From what a server tells at /metrics; zeros where it tells nothing of it."""
        totals: dict[str, float] = {}
        places: dict[int, float] = {}
        for name, place, value in _LINE.findall(metrics):
            if name == "num_accepted_tokens_per_pos":
                places[int(place or 0)] = places.get(int(place or 0), 0.0) + float(value)
            else:
                totals[name] = totals.get(name, 0.0) + float(value)
        at = [int(places.get(place, 0)) for place in range(max(places, default=-1) + 1)]
        return cls(int(totals.get("num_drafts", 0)), int(totals.get("num_draft_tokens", 0)), at)

    def since(self, earlier: DraftCounts) -> DraftCounts:
        """What came on top of the earlier counts."""
        pairs = zip_longest(self.accepted_at, earlier.accepted_at, fillvalue=0)
        return DraftCounts(
            self.num_drafts - earlier.num_drafts,
            self.num_draft_tokens - earlier.num_draft_tokens,
            [now - before for now, before in pairs],
        )

    def figures(self) -> dict[str, Any]:
        """vLLM's keys; none where nothing was guessed. The acceptance length counts the token behind the guesses, too."""
        if self.num_drafts < 1:
            return {}
        accepted = sum(self.accepted_at)
        places = [count / self.num_drafts for count in self.accepted_at]
        while places and places[-1] == 0.0:
            places.pop()
        return {
            "spec_decode_num_drafts": self.num_drafts,
            "spec_decode_draft_tokens": self.num_draft_tokens,
            "spec_decode_accepted_tokens": accepted,
            "spec_decode_acceptance_rate": 100.0 * accepted / max(1, self.num_draft_tokens),
            "spec_decode_acceptance_length": 1.0 + accepted / self.num_drafts,
            "spec_decode_per_position_acceptance_rates": places,
        }


def draft_rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """The figures as rows of a report; none where nothing was guessed."""
    if "spec_decode_num_drafts" not in figures:
        return []
    places = " ".join(f"{rate:.2f}" for rate in figures["spec_decode_per_position_acceptance_rates"])
    return [
        ("Acceptance rate (%)", f"{figures['spec_decode_acceptance_rate']:.2f}"),
        ("Acceptance length", f"{figures['spec_decode_acceptance_length']:.2f}"),
        ("Drafts", f"{figures['spec_decode_num_drafts']}"),
        ("Draft tokens", f"{figures['spec_decode_draft_tokens']}"),
        ("Accepted tokens", f"{figures['spec_decode_accepted_tokens']}"),
        ("Acceptance by position", places),
    ]
