"""StructuredOutputsParams: the form that a request asks its answer to have. Names and meanings follow vLLM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from octavo.errors import InvalidRequestError

FORMS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
_PLACE = re.compile(r" - at `\$(\.\w+)?.*`")
"""Where a ValidationError says that the fault lies."""


class StructuredOutputsParams(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Exactly one of the forms is given; None, False and nothing else ask for nothing.

    json            a JSON schema, as a text or as the object itself; the answer is a JSON value that it accepts
    json_object     True: the answer is any JSON object
    regex           the whole answer matches it (syntax of Rust's regex crate: no look-around, no back references)
    choice          the answer is one of these texts
    grammar         a context-free grammar, in Lark's form or in llama.cpp's GBNF
    structural_tag  JSON text of vLLM's form {"structures": [{"begin", "schema", "end"}], "triggers": [...]}: free text in which
                    every structure that a trigger opens has the form of its schema
    disable_any_whitespace  JSON without white space between its parts
    whitespace_pattern      a regex for the white space between the parts of JSON; None: at most 40 spaces, tabs and line ends
    """

    json: str | bool | dict[str, Any] | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    structural_tag: str | None = None
    disable_any_whitespace: bool = False
    whitespace_pattern: str | None = None

    @classmethod
    def checked(cls, given: object) -> StructuredOutputsParams:
        """One made of an object of this kind or a mapping of its fields, with the types that its fields have.

        Raises InvalidRequestError naming the field, also when there are several forms.
        """
        if not isinstance(given, (cls, Mapping)):
            raise InvalidRequestError(
                f"structured_outputs must be a StructuredOutputsParams, not {type(given).__name__}", param="structured_outputs"
            )
        try:
            checked = msgspec.convert(msgspec.to_builtins(given), cls)
        except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
            place = _PLACE.search(str(error))
            param = "structured_outputs" + (place[1] if place is not None else "")
            raise InvalidRequestError(f"{param}: {_PLACE.sub('', str(error))[:300]}", param=param) from None
        checked._given()
        return checked

    @property
    def form(self) -> str | None:
        """The name of the one form that is given; None if there is none. Raises InvalidRequestError when there are several."""
        return self._given()

    def _given(self) -> str | None:
        given = [name for name in FORMS if getattr(self, name) is not None and getattr(self, name) is not False]
        if len(given) > 1:
            raise InvalidRequestError(
                f"structured_outputs has {' and '.join(given)}; an answer can have one form, so give one of them",
                param="structured_outputs",
            )
        return given[0] if given else None
