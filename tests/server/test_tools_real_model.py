"""Tools with the real embedded model, whose template knows none: calls that match their schema, read by the openai client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import openai
import pytest
from tests.served import Served
from tests.unit.dialogue.recorded import SEOUL, TOOLS

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city", "unit", "days"],
}
FORECAST: Any = {"type": "function", "function": {"name": "get_forecast", "description": "Weather", "parameters": PARAMETERS}}
USER: Any = {"role": "user", "content": "What is the weather in Seoul tomorrow?"}


@pytest.fixture(scope="module")
def client(smollm2_gguf: Path) -> Iterator[openai.OpenAI]:
    server = Served(smollm2_gguf, "--kv-cache-memory", "0.125", "--max-model-len", "1024", "--log-level", "error")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as made:
        yield made
    assert server.stop() == (0, "")


def both(client: openai.OpenAI, **fields: Any) -> Any:
    """The choice of the whole answer, which a stream gives, too."""
    request: dict[str, Any] = {"model": "m", "messages": [USER], "max_tokens": 100, "temperature": 0, **fields}
    whole = client.chat.completions.create(**request)
    with client.chat.completions.stream(**request) as events:
        streamed = events.get_final_completion()
    first, second = whole.choices[0], streamed.choices[0]
    assert first.finish_reason == second.finish_reason and (first.message.content or "") == second.message.content
    calls = [
        [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
        for choice in (first, second)
    ]
    assert calls[0] == calls[1]
    return first


def test_required_and_named_calls_match_their_schema_and_their_results_go_back(client: openai.OpenAI) -> None:
    messages: list[Any] = [USER]
    choices: list[Any] = ["required", {"type": "function", "function": {"name": "get_forecast"}}]
    for choice in choices:
        answer = both(client, tools=[FORECAST], tool_choice=choice, parallel_tool_calls=False, messages=messages)
        assert answer.finish_reason == "tool_calls" and answer.message.content is None
        [call] = answer.message.tool_calls
        jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)
        messages += [answer.message, {"role": "tool", "tool_call_id": call.id, "content": '{"sky": "맑음 ☀️"}'}]
    assert (
        client.chat.completions.create(model="m", messages=messages, tools=[FORECAST], max_tokens=4).choices[0].message.content
    )


def test_forced_text_of_a_call_is_a_call(client: openai.OpenAI) -> None:
    text = f'<tool_call>\n{{"name": "get_weather", "arguments": {SEOUL}}}\n</tool_call>'
    answer = both(client, tools=TOOLS, extra_body={"structured_outputs": {"choice": [text]}})
    assert answer.finish_reason == "tool_calls" and answer.message.content is None
    assert [call.function.arguments for call in answer.message.tool_calls] == [SEOUL]


def test_strict_calls_under_auto_and_text_with_a_form(client: openai.OpenAI) -> None:
    function = {**FORECAST["function"], "strict": True, "parameters": {**PARAMETERS, "additionalProperties": False}}
    extra = {"structured_outputs": {"choice": ["I do not know."]}}
    answer = both(client, tools=[{"type": "function", "function": function}], extra_body=extra)
    if answer.finish_reason == "tool_calls":
        jsonschema.validate(json.loads(answer.message.tool_calls[0].function.arguments), PARAMETERS)
    else:
        assert (answer.finish_reason, answer.message.content) == ("stop", "I do not know.")
