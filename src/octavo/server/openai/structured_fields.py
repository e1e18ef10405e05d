"""The request fields that ask for a form of the answer: OpenAI's response_format, vLLM's structured_outputs and guided_*."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import InvalidRequestError, did_you_mean
from octavo.server.body import Body, asks_for_nothing
from octavo.server.service.service import Service
from octavo.structured_outputs import StructuredOutputsParams


class StructuredFields(Body):
    """One of them may be given; guided_whitespace_pattern goes with guided_json.

    response_format  {"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "json_schema": {"schema": ...}} or
                     {"type": "structural_tag", "structures": [...], "triggers": [...]}, or with a tree as its "format"
    """

    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None


@dataclass(frozen=True, slots=True)
class AskedForm:
    """What is asked for, and the field that asks.

    ours, theirs  the name that a fault has in StructuredOutputsParams, and what the client calls it
    """

    params: StructuredOutputsParams
    ours: str
    theirs: str

    async def check(self, service: Service) -> StructuredOutputsParams:
        """The params, if answers can be held to them. Raises InvalidRequestError naming the client's field."""
        try:
            await service.engine.check_form(self.params)
        except InvalidRequestError as error:
            param = None if error.param is None else error.param.replace(self.ours, self.theirs, 1)
            message = error.message.replace(self.ours, self.theirs)
            raise InvalidRequestError(message, param=param, code=error.code) from None
        return self.params


def asked_form(fields: StructuredFields) -> AskedForm | None:
    """The form that a body asks for; None if it asks for none. Raises InvalidRequestError."""
    given = [name for name in _READERS if getattr(fields, name) is not None]
    asked = [(name, form) for name in given if (form := _READERS[name](getattr(fields, name))) is not None]
    if len(asked) > 1:
        raise InvalidRequestError(
            f"{' and '.join(name for name, _ in asked)} are given; an answer can have one form, so give one of them",
            param=asked[1][0],
        )
    if not asked:
        return None
    name, form = asked[0]
    if fields.guided_whitespace_pattern is not None and name == "guided_json":
        form.params.whitespace_pattern = fields.guided_whitespace_pattern
    return form


def _response_format(value: dict[str, Any]) -> AskedForm | None:
    kind = value.get("type")
    tag_keys = ("structures", "triggers", "format")
    known = {"text": (), "json_object": (), "json_schema": ("json_schema",), "structural_tag": tag_keys}
    if not isinstance(kind, str) or kind not in known:
        shown = repr(kind)[:100] if "type" in value else "missing"
        hint = did_you_mean(kind, known) if isinstance(kind, str) else ""
        raise InvalidRequestError(
            f"response_format.type is {shown}; it must be one of {', '.join(known)}{hint}", param="response_format.type"
        )
    _refuse_others(value, ("type", *known[kind]), "response_format")
    if kind == "text":
        return None
    if kind == "json_object":
        return AskedForm(StructuredOutputsParams(json_object=True), "structured_outputs.json_object", "response_format")
    if kind == "structural_tag":
        tag = json.dumps({name: value[name] for name in known[kind] if name in value})
        return AskedForm(StructuredOutputsParams(structural_tag=tag), "structured_outputs.structural_tag", "response_format")
    return _json_schema(value.get("json_schema"))


def _json_schema(value: Any) -> AskedForm:
    """strict or not, the schema is kept in full; its name and description are for models that are told of them."""
    place = "response_format.json_schema"
    if not isinstance(value, dict):
        raise InvalidRequestError(f'{place} must be an object such as {{"name": "answer", "schema": {{...}}}}', param=place)
    _refuse_others(value, ("name", "description", "schema", "strict"), place)
    for name, kind in (("name", str), ("description", str), ("strict", bool)):
        if value.get(name) is not None and not isinstance(value[name], kind):
            raise InvalidRequestError(
                f"{place}.{name} must be a {'text' if kind is str else 'boolean'}", param=f"{place}.{name}", code="invalid_type"
            )
    schema = value.get("schema")
    if schema is None:
        raise InvalidRequestError(f"{place}.schema is required", param=f"{place}.schema", code="missing_field")
    if not isinstance(schema, dict | bool):
        raise InvalidRequestError(f"{place}.schema must be a JSON schema: an object, or true", param=f"{place}.schema")
    return AskedForm(StructuredOutputsParams(json=schema or True), "structured_outputs.json", f"{place}.schema")


def _structured_outputs(value: dict[str, Any]) -> AskedForm | None:
    params = StructuredOutputsParams.checked({name: item for name, item in value.items() if not asks_for_nothing(item)})
    return None if params.form is None else AskedForm(params, "structured_outputs", "structured_outputs")


def _guided(form: str) -> Callable[[Any], AskedForm | None]:
    def read(value: Any) -> AskedForm | None:
        params = StructuredOutputsParams.checked({form: value})
        return AskedForm(params, f"structured_outputs.{form}", f"guided_{form}")

    return read


_READERS: Mapping[str, Callable[[Any], AskedForm | None]] = {
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
    "guided_json": _guided("json"),
    "guided_regex": _guided("regex"),
    "guided_choice": _guided("choice"),
    "guided_grammar": _guided("grammar"),
}


def _refuse_others(value: dict[str, Any], known: tuple[str, ...], place: str) -> None:
    for name, item in value.items():
        if name not in known and not asks_for_nothing(item):
            param = f"{place}.{name[:64]}"
            raise InvalidRequestError(f"unknown field {param!r}{did_you_mean(name, known)}", param=param, code="unknown_field")
