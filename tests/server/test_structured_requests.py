"""The fields that ask for a form: what reaches the engine, what the SDK makes of the answer, and refusals by name."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel
from tests.server.conftest import MODEL, LiveServer

from octavo.structured_outputs import StructuredOutputsParams

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER: Any = {"role": "user", "content": "x"}
BODIES: dict[str, dict[str, Any]] = {CHAT: {"messages": [USER]}, COMPLETIONS: {"prompt": "x"}}
SCHEMA = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"], "additionalProperties": False}


class Answer(BaseModel):
    value: int


def asked(server: LiveServer) -> StructuredOutputsParams | None:
    return server.engine.requests[-1][1].structured_outputs


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": None, "guided_json": None, "structured_outputs": None}, None),
        ({"structured_outputs": {}, "guided_choice": []}, None),
        ({"structured_outputs": {"json": None, "regex": ""}}, None),
        ({"response_format": {"type": "json_object"}}, StructuredOutputsParams(json_object=True)),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}},
            StructuredOutputsParams(json=SCHEMA),
        ),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, StructuredOutputsParams(json=True)),
        ({"structured_outputs": {"choice": ["a", "b"]}}, StructuredOutputsParams(choice=["a", "b"])),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
            StructuredOutputsParams(json=SCHEMA, disable_any_whitespace=True),
        ),
        ({"guided_json": SCHEMA}, StructuredOutputsParams(json=SCHEMA)),
        (
            {"guided_json": SCHEMA, "guided_whitespace_pattern": "[ ]?"},
            StructuredOutputsParams(json=SCHEMA, whitespace_pattern="[ ]?"),
        ),
        ({"guided_regex": "a+"}, StructuredOutputsParams(regex="a+")),
        ({"guided_choice": ["a"], "response_format": {"type": "text"}}, StructuredOutputsParams(choice=["a"])),
        ({"guided_grammar": 'root ::= "a"'}, StructuredOutputsParams(grammar='root ::= "a"')),
    ],
)
def test_every_field_reaches_the_engine(
    server: LiveServer, http: httpx.Client, path: str, fields: dict[str, Any], form: StructuredOutputsParams | None
) -> None:
    answer = http.post(path, json={**BODIES[path], **fields})
    assert answer.status_code == 200, answer.text
    assert asked(server) == form


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"response_format": {}, "guided_regex": "("}, "guided_regex", "invalid_value"),
        ({"response_format": {"json_schema": {}}}, "response_format.type", "invalid_value"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "invalid_value"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            *("response_format.json_schema.schema", "missing_field"),
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": 1, "schema": {}}}},
            *("response_format.json_schema.name", "invalid_type"),
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {"pattern": "a"}}}}},
            *("response_format.json_schema.schema", "unsupported_schema"),
        ),
        ({"response_format": {"type": "json_object", "schema": {"a": 1}}}, "response_format.schema", "unknown_field"),
        ({"response_format": 5}, "response_format", "invalid_type"),
        ({"structured_outputs": {"json": {"uniqueItems": True}}}, "structured_outputs.json", "unsupported_schema"),
        ({"structured_outputs": {"choice": "a"}}, "structured_outputs.choice", "invalid_value"),
        ({"structured_outputs": {"choice": ["a"], "regex": "a"}}, "structured_outputs", "invalid_value"),
        ({"structured_outputs": {"xml": "a"}}, "structured_outputs", "invalid_value"),
        ({"guided_json": {"type": "objekt"}}, "guided_json", "invalid_value"),
        ({"guided_choice": ["a", ""]}, "guided_choice", "invalid_value"),
        ({"guided_grammar": "("}, "guided_grammar", "invalid_value"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex", "invalid_value"),
        ({"allowed_token_ids": []}, "allowed_token_ids", "invalid_value"),
        ({"allowed_token_ids": ["a"]}, "allowed_token_ids[0]", "invalid_type"),
        ({"allowed_token_ids": [1, 1 << 20]}, "allowed_token_ids", "token_out_of_range"),
    ],
)
def test_a_fault_has_the_name_that_the_client_uses(
    server: LiveServer, http: httpx.Client, path: str, fields: dict[str, Any], param: str, code: str
) -> None:
    answer = http.post(path, json={**BODIES[path], "stream": True, **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, code), error
    assert "structured_outputs" not in error["message"] or "structured_outputs" in fields
    assert not server.engine.requests


def test_the_sdk_parses_an_answer(server: LiveServer, client: openai.OpenAI) -> None:
    server.engine.answer = '{"value": 3}'
    parsed = client.chat.completions.parse(model=MODEL, messages=[USER], response_format=Answer)
    assert parsed.choices[0].message.parsed == Answer(value=3)
    form = asked(server)
    assert form is not None and isinstance(form.json, dict) and form.json["required"] == ["value"]


def test_a_stream_gives_what_the_whole_answer_is(server: LiveServer, client: openai.OpenAI) -> None:
    server.engine.answer = '{"value": 4}'
    with client.chat.completions.stream(model=MODEL, messages=[USER], response_format=Answer) as events:
        streamed = events.get_final_completion().choices[0].message
    whole = client.chat.completions.parse(model=MODEL, messages=[USER], response_format=Answer).choices[0].message
    assert (streamed.content, streamed.parsed) == (whole.content, whole.parsed) == ('{"value": 4}', Answer(value=4))
