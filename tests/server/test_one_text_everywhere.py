"""The real model says the same through every protocol, streamed and not; the SDKs are the judges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import anthropic
import openai
import pytest
from pydantic import BaseModel
from tests.served import Served

MODEL = "m"


class Person(BaseModel):
    mood: Literal["happy", "sad"]
    age: Literal[1, 22, 333]


@pytest.fixture(scope="module")
def served(smollm2_gguf: Path) -> Iterator[Served]:
    started = Served(smollm2_gguf, "--kv-cache-memory", "0.125", "--max-model-len", "1024", "--log-level", "error")
    yield started
    assert started.stop() == (0, "")


@pytest.fixture(scope="module")
def sdk(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=120, _strict_response_validation=True
    ) as made:
        yield made


@pytest.fixture(scope="module")
def claude(served: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=served.url, api_key="none", max_retries=0, timeout=120, _strict_response_validation=True
    ) as made:
        yield made


SYSTEM = "You answer in one short sentence."
CONVERSATIONS: list[list[Any]] = [
    [{"role": "user", "content": "What is a library?"}],
    [
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": "Another one, with an emoji."},
    ],
]
SAMPLINGS: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.9, "seed": 7, "top_k": 40, "top_p": 0.95}]


@pytest.mark.parametrize(("messages", "sampling"), list(zip(CONVERSATIONS, SAMPLINGS, strict=True)))
def test_one_text(sdk: openai.OpenAI, claude: anthropic.Anthropic, messages: list[Any], sampling: dict[str, Any]) -> None:
    fields: Any = {"model": MODEL, "extra_body": sampling}
    chat = sdk.chat.completions.create(
        messages=[{"role": "system", "content": SYSTEM}, *messages], max_completion_tokens=24, **fields
    )
    text, usage = chat.choices[0].message.content, chat.usage
    assert text and usage is not None
    whole = sdk.responses.create(input=messages, instructions=SYSTEM, max_output_tokens=24, **fields)
    events = list(sdk.responses.create(input=messages, instructions=SYSTEM, max_output_tokens=24, stream=True, **fields))
    streamed = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert whole.output_text == streamed == text
    assert whole.status == ("incomplete" if chat.choices[0].finish_reason == "length" else "completed")
    assert whole.usage is not None
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (usage.prompt_tokens, usage.completion_tokens)
    message = claude.messages.create(messages=messages, system=SYSTEM, max_tokens=24, **fields)
    with claude.messages.stream(messages=messages, system=SYSTEM, max_tokens=24, **fields) as stream:
        pieces = "".join(stream.text_stream)
    assert message.content[0].type == "text" and message.content[0].text == pieces == text
    assert message.usage.output_tokens == usage.completion_tokens
    prompt_tokens = message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)
    counted = claude.messages.count_tokens(model=MODEL, messages=messages, system=SYSTEM)
    assert prompt_tokens == counted.input_tokens == usage.prompt_tokens


def test_one_form(sdk: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    user: Any = {"role": "user", "content": "Describe somebody as JSON."}
    fields: Any = {"model": MODEL, "extra_body": {"temperature": 1.0, "seed": 3}}
    chat = sdk.chat.completions.parse(messages=[user], response_format=Person, max_tokens=300, **fields)
    whole = sdk.responses.parse(input=[user], text_format=Person, **fields)
    assert whole.output_parsed is not None and whole.output_parsed == chat.choices[0].message.parsed
    with sdk.responses.stream(input=[user], text_format=Person, **fields) as events:
        assert events.get_final_response().output_text == whole.output_text == chat.choices[0].message.content
    parsed = claude.messages.parse(messages=[user], output_format=Person, max_tokens=300, **fields)
    assert isinstance(parsed.parsed_output, Person)


def test_a_conversation_goes_on(sdk: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    """What came out goes back in, and the next answer is that of the chat in which it stands."""
    extra: Any = {"model": MODEL, "extra_body": {"temperature": 0}}
    chat: list[Any] = [{"role": "user", "content": "Name an animal."}]
    items: list[Any] = list(chat)
    blocks: list[Any] = list(chat)
    for question in ("Where does it live?", "What does it eat?"):
        message = sdk.chat.completions.create(messages=chat, max_tokens=12, **extra).choices[0].message
        output = sdk.responses.create(input=items, max_output_tokens=12, **extra).output
        content = claude.messages.create(messages=blocks, max_tokens=12, **extra).content
        assert content[0].type == "text" and content[0].text == message.content
        asked = {"role": "user", "content": question}
        chat += [message.to_dict(), asked]
        items += [*output, asked]
        blocks += [{"role": "assistant", "content": content}, asked]
    texts = {
        sdk.chat.completions.create(messages=chat, max_tokens=12, **extra).choices[0].message.content,
        sdk.responses.create(input=items, max_output_tokens=12, **extra).output_text,
        claude.messages.create(messages=blocks, max_tokens=12, **extra).content[0].to_dict()["text"],
    }
    assert len(texts) == 1


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Bern", "Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
QUESTION: Any = {"role": "user", "content": "What is the weather in Rome?"}


def in_chat(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, "strict": True}}


def in_responses(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": SCHEMA, "strict": True}


def in_messages(name: str) -> dict[str, Any]:
    return {"name": name, "input_schema": SCHEMA, "strict": True}


CHOICES: list[Any] = [
    ("required", "required", {"type": "any", "disable_parallel_tool_use": True}),
    (
        {"type": "function", "function": {"name": "time"}},
        {"type": "function", "name": "time"},
        {"type": "tool", "name": "time"},
    ),
]


@pytest.mark.parametrize(("of_chat", "of_responses", "of_messages"), CHOICES)
def test_one_call(sdk: Any, claude: Any, of_chat: Any, of_responses: Any, of_messages: Any) -> None:
    fields = {"model": MODEL, "extra_body": {"temperature": 0.8, "seed": 5}}
    names = ("weather", "time")
    ours = {"tools": [in_responses(name) for name in names], "tool_choice": of_responses, "parallel_tool_calls": False}
    chat = sdk.chat.completions.create(
        messages=[QUESTION], tools=[in_chat(name) for name in names], tool_choice=of_chat, parallel_tool_calls=False, **fields
    ).choices[0]
    (call,) = chat.message.tool_calls
    made = (call.function.name, json.loads(call.function.arguments))
    assert chat.finish_reason == "tool_calls" and (of_chat == "required" or made[0] == "time")
    whole = sdk.responses.create(input=[QUESTION], **ours, **fields)
    with sdk.responses.stream(input=[QUESTION], **ours, **fields) as events:
        deltas = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
        streamed = events.get_final_response()
    for answer in (whole, streamed):
        (item,) = answer.output
        assert (item.type, item.name, json.loads(item.arguments)) == ("function_call", *made)
        assert item.arguments == deltas and answer.status == "completed"
    theirs = {"tools": [in_messages(name) for name in names], "tool_choice": of_messages, "max_tokens": 200}
    message = claude.messages.create(messages=[QUESTION], **theirs, **fields)
    with claude.messages.stream(messages=[QUESTION], **theirs, **fields) as stream:
        final = stream.get_final_message()
    for answer in (message, final):
        (block,) = answer.content
        assert (block.type, block.name, block.input) == ("tool_use", *made) and answer.stop_reason == "tool_use"


def test_the_result_of_a_call_goes_back_in(sdk: Any, claude: Any) -> None:
    """Twice: a call and its result, then an answer in words that is the same through every protocol."""
    fields = {"model": MODEL, "extra_body": {"temperature": 0}}
    alone = {"type": "any", "disable_parallel_tool_use": True}
    chat, items, blocks = [QUESTION], [QUESTION], [QUESTION]
    for result in ("sunny", "no, rain"):
        ours = {"tools": [in_responses("weather")], "tool_choice": "required", "parallel_tool_calls": False}
        output = sdk.responses.create(input=items, **ours, **fields).output
        theirs = {"tools": [in_messages("weather")], "tool_choice": alone, "max_tokens": 300}
        content = claude.messages.create(messages=blocks, **theirs, **fields).content
        call = output[-1]
        assert json.loads(call.arguments) == content[-1].input
        items = [*items, *output, {"type": "function_call_output", "call_id": call.call_id, "output": result}]
        results = [{"type": "tool_result", "tool_use_id": content[-1].id, "content": result}]
        blocks = [*blocks, {"role": "assistant", "content": content}, {"role": "user", "content": results}]
        made = {"id": "c", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        told = {"role": "tool", "tool_call_id": "c", "content": result}
        chat = [*chat, {"role": "assistant", "content": None, "tool_calls": [made]}, told]
    text = sdk.chat.completions.create(messages=chat, max_tokens=12, **fields).choices[0].message.content
    assert sdk.responses.create(input=items, max_output_tokens=12, **fields).output_text == text
    assert claude.messages.create(messages=blocks, max_tokens=12, **fields).content[0].text == text


def test_a_call_that_is_cut_is_not_said_to_be_whole(sdk: Any, claude: Any) -> None:
    fields = {"model": MODEL, "extra_body": {"temperature": 0}}
    ours = {"tools": [in_responses("weather")], "tool_choice": "required", "max_output_tokens": 16}
    cut = sdk.responses.create(input=[QUESTION], **ours, **fields)
    assert cut.status == "incomplete" and cut.output[-1].status == "incomplete"
    theirs = {"tools": [in_messages("weather")], "tool_choice": {"type": "any"}, "max_tokens": 16}
    assert claude.messages.create(messages=[QUESTION], **theirs, **fields).stop_reason == "max_tokens"


def test_clients_that_vanish_leave_nothing_behind(served: Served, sdk: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    fields: Any = {"model": MODEL, "extra_body": {"ignore_eos": True}, "stream": True}
    for _ in range(3):
        with sdk.responses.create(input="Once", max_output_tokens=900, **fields) as events:
            next(iter(events))
        with claude.messages.create(messages=[{"role": "user", "content": "Once"}], max_tokens=900, **fields) as chunks:
            next(iter(chunks))
    sdk.responses.create(model=MODEL, input="x", max_output_tokens=16)
    while not served.is_idle():
        pass
