"""TurnFields: the sampling fields of a chat that protocols of one answer take under the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ConfigDict

from octavo.errors import InvalidRequestError
from octavo.server.body import asks_for_nothing, parse_body
from octavo.server.openai.sampling_fields import SamplingFields

TAKEN = frozenset(
    {
        *("model", "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "seed", "logit_bias", "bad_words"),
        *("repetition_penalty", "presence_penalty", "frequency_penalty", "stop", "stop_token_ids", "ignore_eos", "min_tokens"),
        *("include_stop_str_in_output", "skip_special_tokens", "cache_salt", "priority", "timeout", "user"),
        "structured_outputs",
    }
)
"""Those that mean the same in every protocol. What is new in SamplingFields is refused elsewhere until it stands here."""

_REFUSED = frozenset(SamplingFields.model_fields) - TAKEN
_NEUTRAL: Mapping[str, Any] = {"n": 1, "detokenize": True, "spaces_between_special_tokens": True}


def without_refused(schema: dict[str, Any]) -> None:
    """Take what is refused out of the description of a body."""
    for name in _REFUSED:
        schema["properties"].pop(name, None)


class TurnFields(SamplingFields):
    """Of the fields that it inherits only those in TAKEN may ask for something; parse_turn_body refuses the others."""

    model_config = ConfigDict(json_schema_extra=without_refused)


TurnT = TypeVar("TurnT", bound=TurnFields)


def parse_turn_body(kind: type[TurnT], raw: Mapping[str, Any], instead: Mapping[str, str]) -> TurnT:
    """The raw JSON object as a body of this kind.

    instead  what to do instead, for fields that are refused with more words than the rest
    Raises: InvalidRequestError naming the field.
    """
    fields = {}
    for name, value in raw.items():
        if name in instead and not asks_for_nothing(value):
            raise _unsupported(name, instead[name])
        if name not in _REFUSED or name in instead:
            fields[name] = value
        elif not asks_for_nothing(value) and not (name in _NEUTRAL and value == _NEUTRAL[name]):
            raise _unsupported(name, "leave it out")
    return parse_body(kind, fields)


def _unsupported(name: str, instead: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name} is not supported here: {instead}", param=name, code="unsupported_field")
