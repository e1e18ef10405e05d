"""Body: the strict base of all request bodies, and how a fault in one becomes a 400 that names the field.

Honour or refuse. A field is either declared, and then it does something; or harmless (it cannot change the answer) and then it
is accepted and listed in docs/errors.md; or it is refused by name. Values that ask for nothing are accepted in every field, as
SDKs write all the fields they know.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from octavo.errors import InvalidRequestError
from octavo.request import MAX_CACHE_SALT_LENGTH, MAX_TENANT_LENGTH
from octavo.sampling_params import MAX_LOGPROBS

INT32_MAX = 2**31 - 1

MAX_SHOWN = 100
"""Most characters of a value that an error repeats."""


def _whole(value: Any) -> Any:
    """5.0 is the whole number 5: some languages write all numbers so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# The limits stand before the validator: only there does /openapi.json show them.
Int32 = Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX), BeforeValidator(_whole)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1), BeforeValidator(_whole)]
Count = Annotated[int, Field(ge=0, le=INT32_MAX), BeforeValidator(_whole)]
NumLogprobs = Annotated[int, Field(ge=0, le=MAX_LOGPROBS), BeforeValidator(_whole)]
ModelName = Annotated[str, Field(max_length=1024)]
CacheSalt = Annotated[str, Field(max_length=MAX_CACHE_SALT_LENGTH)]
Tenant = Annotated[str, Field(max_length=MAX_TENANT_LENGTH)]

HARMLESS_FIELDS = frozenset(
    {
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "request_id",
    }
)
"""Accepted and ignored: bookkeeping of OpenAI's own service that cannot change what is generated here."""

UNSUPPORTED_FIELDS: dict[str, tuple[Any, ...]] = {
    "early_stopping": (),
    "guided_decoding_backend": ("auto",),
    "logits_processors": (),
    "prompt_embeds": (),
    "kv_transfer_params": (),
    "vllm_xargs": (),
}
"""Fields other servers know and this one does not do, with the values that ask for nothing, besides the empty ones."""

_INSTEAD = {
    "early_stopping": "a beam search ends with max_tokens, or when no beam is left; leave it out",
    "logits_processors": "use logit_bias, allowed_token_ids, bad_words or structured_outputs",
    "prompt_embeds": "send the prompt as text or token ids",
    "functions": "they are the old form of tools; send those",
    "function_call": "it is the old form of tool_choice; send that",
}
"""What to do instead, where leaving a field out is not the answer."""

EMPTY_MATTERS = frozenset(
    {"prompt", "messages", "tokens", "allowed_token_ids", "input", "query", "queries", "documents", "text_1", "text_2"}
)
"""Fields in which an empty value is an answer to be refused, or one of its own."""


NOTHING: list[Any] = [None, False, "", [], {}]
"""What asks_for_nothing takes, as JSON."""


def asks_for_nothing(value: Any) -> bool:
    """null, false, and empty texts, lists and objects."""
    return value is None or value is False or (isinstance(value, (str, list, dict)) and not value)


class Body(BaseModel):
    """Strict types (no "1" for 1), no NaN, no unknown fields unless they ask for nothing."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _without_what_asks_for_nothing(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: item for name, item in value.items() if not asks_for_nothing(item) or cls._reads_empty(name, item)}

    @classmethod
    def _reads_empty(cls, name: str, value: Any) -> bool:
        """The field is declared, and an empty value of this kind is one of its values."""
        field = cls.model_fields.get(name)
        if field is None:
            return False
        return name in EMPTY_MATTERS or value is None or (value is False and field.annotation == (bool | None))


BodyT = TypeVar("BodyT", bound=Body)


def parse_body(
    kind: type[BodyT], raw: dict[str, Any], unsupported: Mapping[str, tuple[Any, ...]] = UNSUPPORTED_FIELDS
) -> BodyT:
    """The raw JSON object as a body of this kind.

    Raises: InvalidRequestError naming the first field that is unknown, unsupported, missing, of the wrong type or out of range.
    """
    known = kind.model_fields
    fields: dict[str, Any] = {}
    for name, value in raw.items():
        if name in known:
            fields[name] = value
        elif name in HARMLESS_FIELDS or asks_for_nothing(value):
            continue
        elif name in unsupported:
            if not any(value == neutral and type(value) is not bool or value is neutral for neutral in unsupported[name]):
                instead = _INSTEAD.get(name, "leave it out")
                raise InvalidRequestError(
                    f"{name} is not supported by this server; {instead}", param=name, code="unsupported_field"
                )
        else:
            raise _unknown_field(name, known)
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise _as_request_error(error) from None


def _unknown_field(name: str, known: Mapping[str, Any]) -> InvalidRequestError:
    shown = name if len(name) <= 64 else name[:64] + "..."
    near = difflib.get_close_matches(name[:64], known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return InvalidRequestError(f"unknown field {shown!r}{hint}", param=shown, code="unknown_field")


def _as_request_error(error: ValidationError) -> InvalidRequestError:
    first, *others = error.errors(include_url=False)
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InvalidRequestError):
        return cause
    param = ""
    *place, last = first["loc"] or ("",)
    is_union = last in _UNION_MEMBERS and bool(place)
    for part in place if is_union else first["loc"]:
        param += f"[{part}]" if isinstance(part, int) else (f".{part}" if param else str(part))
    param = param[:200]
    if first["type"] == "missing":
        return InvalidRequestError(f"{param} is required", param=param, code="missing_field")
    if first["type"] == "extra_forbidden":
        return InvalidRequestError(f"unknown field {param!r}", param=param, code="unknown_field")
    code = "invalid_type" if "type" in first["type"] else "invalid_value"
    wanted = _wanted(first["type"], first.get("ctx", {}))
    if is_union:
        members = [str(last), *(str(other["loc"][-1]) for other in others if list(other["loc"][:-1]) == place)]
        wanted = " or ".join(_UNION_MEMBERS[member] for member in members if member in _UNION_MEMBERS)
    if wanted is not None and param:
        text = f"{param} is {_shown(first['input'])}; it must be {wanted}"
        return InvalidRequestError(text, param=param, code=code)
    message = first["msg"].removeprefix("Value error, ")
    text = f"{param}: {message[0].lower()}{message[1:300]}" if param else message[:300]
    return InvalidRequestError(text, param=param or None, code=code)


_KINDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}


_UNION_MEMBERS = {"float": "a number", "str": "a string", "dict[str,any]": "an object"}
"""What pydantic adds to the place of a value that may be of several kinds, in words."""


def _wanted(kind: str, limits: Mapping[str, Any]) -> str | None:
    """What a value should be, in words, where pydantic refused it as this kind of error."""
    if kind == "greater_than_equal":
        return f"at least {limits['ge']}"
    if kind == "greater_than":
        return f"above {limits['gt']:g}"
    if kind == "less_than_equal":
        return f"at most {limits['le']}"
    if kind == "literal_error":
        return str(limits["expected"])
    if kind == "string_too_long":
        return f"at most {limits['max_length']} characters long"
    return _KINDS.get(kind)


def _shown(value: Any) -> str:
    """A value as its sender wrote it, short."""
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value[:MAX_SHOWN]) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
