"""The process that checks forms: each request is StructuredOutputsParams as JSON, the answer a grammar or a Refusal."""

from __future__ import annotations

import msgspec

from octavo.errors import InvalidRequestError
from octavo.grammar.forms import Refusal
from octavo.grammar.source import grammar_source
from octavo.sandbox.child import Answerer, serve
from octavo.structured_outputs import StructuredOutputsParams


def main() -> None:
    serve(_checker)


def _checker(_first: None) -> Answerer:
    return check


def check(content: bytes) -> tuple[str, str]:
    """Kind and text of the answer."""
    try:
        return "text", grammar_source(msgspec.json.decode(content, type=StructuredOutputsParams)) or ""
    except InvalidRequestError as error:
        refusal = Refusal(error.message, error.param, error.code)
    except Exception as error:  # whatever it is, it comes of this form and must not end the process
        words = f"structured_outputs cannot be used: {' '.join(str(error).split())[:200]}"
        refusal = Refusal(words, "structured_outputs", InvalidRequestError.code)
    return "failed", msgspec.json.encode(refusal).decode()
