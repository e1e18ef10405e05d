"""/v1/responses with a fake engine: what is asked for, what is refused, the events, and the SDK as the judge of all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from tests.fakes_server import ANSWER
from tests.scripted_turn import THINK_TALK_CALL, called, said, scripted
from tests.server.conftest import MAX_BODY_SIZE, MODEL, LiveServer, live_server

from octavo.config.server import ServerConfig
from octavo.errors import OverloadedError
from octavo.server.responses import route
from octavo.server.service.tool_plan import NamedTool

TOOL: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}

WEATHER = '{"city": "Bern"}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {WEATHER}}}\n</tool_call>'


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    with live_server(ServerConfig(max_body_size=MAX_BODY_SIZE, reasoning_parser="qwen3")) as server:
        server.engine.max_model_len = 2048
        yield server


@pytest.fixture(scope="module")
def sdk(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=15, _strict_response_validation=True
    ) as made:
        yield made


def ask(live: LiveServer, **fields: Any) -> httpx.Response:
    return httpx.post(f"{live.url}/v1/responses", json={"input": "Hi", **fields}, timeout=15)


def events_of(live: LiveServer, **fields: Any) -> list[tuple[str, Any]]:
    """(name, data) of each event, as they stand on the wire."""
    blocks = ask(live, stream=True, **fields).text.split("\n\n")[:-1]
    pairs = [block.split("\n") for block in blocks]
    assert all(len(pair) == 2 for pair in pairs)
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pairs]


def rendered(live: LiveServer) -> str:
    return live.engine.tokenizer.decode(live.engine.requests[-1][0], skip_special_tokens=False)


def test_whole_and_streamed_are_the_same(live: LiveServer, sdk: openai.OpenAI) -> None:
    whole = sdk.responses.create(model=MODEL, input="Hi")
    with sdk.responses.stream(model=MODEL, input="Hi") as events:
        deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        streamed = events.get_final_response()
    assert whole.output_text == streamed.output_text == deltas == ANSWER
    assert whole.status == streamed.status == "completed" and whole.usage == streamed.usage
    assert whole.usage is not None and whole.usage.output_tokens == len(ANSWER.encode()) + 1
    assert whole.usage.input_tokens_details.cached_tokens == whole.usage.input_tokens // 2


def test_the_prompt_is_that_of_the_same_chat(live: LiveServer) -> None:
    ask(live, instructions="Be brief.", input=[{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}])
    prompt = live.engine.requests[-1][0]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    httpx.post(f"{live.url}/v1/chat/completions", json={"messages": messages})
    assert live.engine.requests[-1][0] == prompt


def test_the_tokens_of_an_input_are_counted_beyond_the_context(sdk: openai.OpenAI) -> None:
    counted = sdk.responses.input_tokens.count(model=MODEL, input="Hi", instructions="Be brief.", tools=[TOOL])
    answer = sdk.responses.create(model=MODEL, input="Hi", instructions="Be brief.", tools=[TOOL], max_output_tokens=1)
    assert answer.usage is not None and counted.input_tokens == answer.usage.input_tokens
    assert sdk.responses.input_tokens.count(model=MODEL, input="x" * 4000).input_tokens > 4000


def test_events_bear_their_names_and_numbers(live: LiveServer) -> None:
    events = events_of(live)
    assert [name for name, _ in events] == [data["type"] for _, data in events]
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    names = [name for name, _ in events]
    assert names[:4] == [f"response.{name}" for name in ("created", "in_progress", "output_item.added", "content_part.added")]
    assert names[-4:] == [f"response.{n}" for n in ("output_text.done", "content_part.done", "output_item.done", "completed")]
    assert set(names[4:-4]) == {"response.output_text.delta"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_limit_makes_it_incomplete(live: LiveServer, sdk: openai.OpenAI, stream: bool) -> None:
    answer: Any = sdk.responses.create(model=MODEL, input="Hi", max_output_tokens=3, stream=stream)
    if stream:
        last = list(answer)[-1]
        assert last.type == "response.incomplete"
        answer = last.response
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output[0].status == "incomplete" and answer.usage.output_tokens == 3


def test_logprobs_are_those_of_a_chat(live: LiveServer, sdk: openai.OpenAI) -> None:
    answer = sdk.responses.create(
        model=MODEL, input="Hi", max_output_tokens=4, include=["message.output_text.logprobs"], top_logprobs=2
    )
    chat = sdk.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=4, logprobs=True, top_logprobs=2
    )
    text: Any = answer.output[0]
    expected: Any = chat.choices[0].logprobs
    assert [item.to_dict() for item in text.content[0].logprobs] == [item.to_dict() for item in expected.content]


@pytest.mark.parametrize("finish_reason", ["tool_calls", "length"])
def test_thoughts_and_calls_come_as_items(live: LiveServer, sdk: openai.OpenAI, finish_reason: str) -> None:
    fields: Any = {"model": MODEL, "input": "Hi", "tools": [TOOL], "tool_choice": {"type": "function", "name": "weather"}}
    with scripted(route, THINK_TALK_CALL, finish_reason) as asked:
        whole = sdk.responses.create(**fields)
        *_, last = sdk.responses.create(stream=True, **fields)
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call", "function_call"]
    assert [item.to_dict() for item in last.response.output] == [item.to_dict() for item in whole.output]
    assert whole.usage is not None and whole.usage.output_tokens_details.reasoning_tokens == 7  # of twelve bytes, at most all
    assert asked[0].tool_choice == NamedTool("weather") and asked[0].tools[0]["function"]["strict"] is True
    assert whole.status == ("completed" if finish_reason == "tool_calls" else "incomplete")


@pytest.mark.parametrize(
    ("answer", "fields", "expected"),
    [
        (CALL, {}, [("function_call", WEATHER)]),
        (f"Wait.\n{CALL}", {}, [("message", "Wait."), ("function_call", WEATHER)]),
        (f"<think>Hm.</think>Yes.\n{CALL}", {}, [("reasoning", "Hm."), ("message", "Yes."), ("function_call", WEATHER)]),
        (f"{CALL}\n{CALL}", {}, [("function_call", WEATHER)] * 2),
        (f"{CALL}\n{CALL}", {"parallel_tool_calls": False}, [("function_call", WEATHER)]),
        (f"{CALL}\nSo.", {}, [("function_call", WEATHER), ("message", "\nSo.")]),
        ("<think>Hm.</think>Yes.", {"tools": []}, [("reasoning", "Hm."), ("message", "Yes.")]),
        ("<think>Hm", {"max_output_tokens": 9}, [("reasoning", "Hm")]),
        (CALL, {"tool_choice": "none"}, [("message", CALL)]),
    ],
)
def test_what_models_write_is_the_same_whole_and_streamed(
    live: LiveServer, sdk: openai.OpenAI, answer: str, fields: dict[str, Any], expected: list[Any]
) -> None:
    live.engine.answer = answer
    try:
        asked: Any = {"model": MODEL, "input": "Hi", "tools": [TOOL], **fields}
        whole = sdk.responses.create(**asked)
        events = list(sdk.responses.create(stream=True, **asked))
    finally:
        live.engine.answer = ANSWER
    assert [said_by(item) for item in whole.output] == expected
    final: Any = events[-1]
    assert [said_by(item) for item in final.response.output] == expected and final.response.usage == whole.usage
    joined: dict[int, str] = {}
    for event in events:
        if event.type.endswith(".delta"):
            joined[event.output_index] = joined.get(event.output_index, "") + event.delta
    assert [joined[index] for index in sorted(joined)] == [text for _, text in expected]
    assert whole.usage is not None
    thoughts = sum(len(text) for kind, text in expected if kind == "reasoning")
    assert whole.usage.output_tokens_details.reasoning_tokens == thoughts  # of one byte each


def said_by(item: Any) -> tuple[str, str]:
    return item.type, item.arguments if item.type == "function_call" else "".join(part.text for part in item.content)


def test_what_came_out_goes_back_in_twice(live: LiveServer, sdk: openai.OpenAI) -> None:
    conversation: list[Any] = [{"role": "user", "content": "Hi"}]
    for _ in range(2):
        with scripted(route, THINK_TALK_CALL, "tool_calls") as asked:
            answer = sdk.responses.parse(model=MODEL, input=conversation, tools=[TOOL])
        conversation += answer.output
        for item in answer.output:
            if item.type == "function_call":
                conversation.append({"type": "function_call_output", "call_id": item.call_id, "output": "sunny"})
    with scripted(route, [said("Well.")], "stop") as asked:
        sdk.responses.create(model=MODEL, input=conversation)
    roles = [message["role"] for message in asked[0].messages]
    assert roles == ["user", *["assistant", "tool", "tool"] * 2]
    turn = asked[0].messages[4]
    assert (turn["content"], turn["reasoning_content"]) == ("I will ask.", "Let me look.")
    assert [call["function"]["arguments"] for call in turn["tool_calls"]] == ['{"city": "Bern"}', "{}"]


def test_a_text_with_a_form(live: LiveServer, sdk: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form: Any = {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}}
    with scripted(route, [said('{"a": 1}')], "stop") as asked:
        answer = sdk.responses.create(model=MODEL, input="Hi", text=form)
    assert asked[0].form is not None and asked[0].form.json == schema
    assert answer.text is not None and answer.text.format is not None and answer.text.format.type == "json_schema"


def test_what_was_asked_for_stands_in_the_answer(sdk: openai.OpenAI) -> None:
    answer = sdk.responses.create(
        model=MODEL,
        input="Hi",
        instructions="Be brief.",
        metadata={"a": "b"},
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=9,
        store=True,
        parallel_tool_calls=False,
        reasoning={"effort": "low"},
        extra_body={"top_k": 3, "seed": 1, "min_p": 0.1, "repetition_penalty": 1.1},
    )
    assert (answer.instructions, answer.metadata, answer.temperature, answer.top_p) == ("Be brief.", {"a": "b"}, 0.5, 0.9)
    assert answer.max_output_tokens == 9 and answer.parallel_tool_calls is False
    assert answer.reasoning is not None and answer.reasoning.effort == "low"
    assert answer.to_dict()["store"] is False


def test_sampling_fields_reach_the_engine(live: LiveServer) -> None:
    ask(live, top_k=3, seed=1, min_p=0.1, repetition_penalty=1.1, stop=["x"], max_output_tokens=5, temperature=0)
    params = live.engine.requests[-1][1]
    assert (params.top_k, params.seed, params.min_p, params.repetition_penalty) == (3, 1, 0.1, 1.1)
    assert (params.stop, params.max_tokens, params.temperature, params.n) == (["x"], 5, 0, 1)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["everything"]}, "include[0]"),
        ({"include": [1]}, "include[0]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": 21, "include": ["message.output_text.logprobs"]}, "top_logprobs"),
        ({"tools": [TOOL], "include": ["message.output_text.logprobs"]}, "include"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [TOOL, {"type": "function", "function": {"name": "f"}}]}, "tools[1].function"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{**TOOL, "parameters": []}]}, None),
        ({"tools": {"a": 1}}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "some"}, "tool_choice"),
        ({"tool_choice": 1}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": ["text"]}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "object", "nope": {}}, "x": 1}}}, "text.format.x"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"format": {"type": "json_object"}}, "structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"min_tokens": 9, "max_output_tokens": 3}, "min_tokens"),
        ({"max_tokens": 3}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"temperature": -1}, "temperature"),
        ({"inptu": "x"}, "inptu"),
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": "x" * 2100}, "input"),
        ({"model": "other"}, "model"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_is_refused_by_name(live: LiveServer, fields: dict[str, Any], param: str | None, stream: bool) -> None:
    if stream and "stream_options" in fields:
        return
    answer = ask(live, stream=stream, **fields)
    if param is None:  # an empty list asks for no parameters
        assert answer.status_code in (200, 400)
        return
    assert answer.status_code == (404 if param == "model" else 400), answer.text
    assert answer.json()["error"]["param"] == param and len(answer.text) < 700


@pytest.mark.parametrize("value", [None, "", [], {}, False])
def test_empty_values_ask_for_nothing(live: LiveServer, value: Any) -> None:
    names = [
        "instructions",
        "tools",
        "tool_choice",
        "text",
        "reasoning",
        "include",
        "metadata",
        "store",
        "background",
        "n",
        "user",
    ]
    names += ["previous_response_id", "conversation", "truncation", "top_logprobs", "stream", "prompt", "a_field_of_tomorrow"]
    answer = ask(live, max_output_tokens=2, **dict.fromkeys(names, value))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("path", ["resp_1", "resp_1/input_items"])
def test_answers_are_not_stored(live: LiveServer, method: str, path: str) -> None:
    answer = httpx.request(method, f"{live.url}/v1/responses/{path}")
    assert answer.status_code == 404 and "stores no answers" in answer.json()["error"]["message"]


def test_errors_before_the_first_token_have_their_status(live: LiveServer) -> None:
    live.engine.fail_first = OverloadedError("the queue is full", retry_after_s=3)
    try:
        answer = ask(live, stream=True)
    finally:
        live.engine.fail_first = None
    assert answer.status_code == 429 and answer.headers["retry-after"] == "3"


def test_errors_after_it_fail_the_response(live: LiveServer, sdk: openai.OpenAI) -> None:
    live.engine.fail_after_tokens = 4
    try:
        *_, last = sdk.responses.create(model=MODEL, input="Hi", stream=True)
    finally:
        live.engine.fail_after_tokens = None
    assert last.type == "response.failed" and last.response.status == "failed"
    assert last.response.error is not None and last.response.error.code == "server_error"
    assert "fake engine broke" not in last.response.error.message


def test_a_client_that_leaves_ends_its_request(live: LiveServer) -> None:
    live.call(live.engine.release.clear)
    try:
        with httpx.stream("POST", f"{live.url}/v1/responses", json={"input": "Hi", "stream": True}) as answer:
            assert next(answer.iter_lines()) == "event: response.created"
        while live.engine.running:
            live.call(live.engine.deliver_one)
        assert live.engine.aborted[-1].startswith("resp_")
    finally:
        live.call(live.engine.release.set)


def test_a_dead_engine_is_noticed_before_the_body_is_read(live: LiveServer) -> None:
    live.engine.is_dead = True
    try:
        assert ask(live).status_code == 503
    finally:
        live.engine.is_dead = False


def test_a_stream_may_call_twice_without_text(live: LiveServer, sdk: openai.OpenAI) -> None:
    calls = [called(0, "{}", "weather"), called(1, "{}", "weather")]
    with scripted(route, calls, "tool_calls"), sdk.responses.stream(model=MODEL, input="Hi", tools=[TOOL]) as events:
        done = [event for event in events if event.type == "response.function_call_arguments.done"]
        final = events.get_final_response()
    assert len(done) == 2 and [item.type for item in final.output] == ["function_call"] * 2 and final.output_text == ""
