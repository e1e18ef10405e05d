"""TemplateOptions: what a request says of the chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    """Switches of the chat template.

    kwargs              further variables for it
    documents           what it is to show the model besides the conversation, if it knows how
    source              another template that the request brings, in Jinja; refused where the server does not trust requests so
    add_special_tokens  put BOS and EOS around as for a plain text, unless the template has
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    kwargs: Mapping[str, Any] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    source: str | None = None
    add_special_tokens: bool = False
