"""/v1/messages with a fake engine: what is asked for, what is refused, the events, and the SDK as the judge of all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from tests.fakes_server import ANSWER
from tests.scripted_turn import THINK_TALK_CALL, said, scripted
from tests.server.conftest import MAX_BODY_SIZE, MODEL, LiveServer, live_server

from octavo.config.server import ServerConfig
from octavo.errors import OverloadedError
from octavo.server.anthropic import route
from octavo.server.service.tool_plan import NamedTool

USER: Any = {"role": "user", "content": "Hi"}
TOOL: Any = {"name": "weather", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}
KEY = "s3cret"
WEATHER = {"city": "Bern"}
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {json.dumps(WEATHER)}}}\n</tool_call>'


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    with live_server(ServerConfig(max_body_size=MAX_BODY_SIZE, api_key=KEY, reasoning_parser="qwen3")) as server:
        server.engine.max_model_len = 2048
        yield server


@pytest.fixture(scope="module")
def sdk(live: LiveServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=live.url, api_key=KEY, max_retries=0, timeout=15, _strict_response_validation=True
    ) as made:
        yield made


def ask(live: LiveServer, **fields: Any) -> httpx.Response:
    body = {"messages": [USER], "max_tokens": 200, **fields}
    return httpx.post(f"{live.url}/v1/messages", json=body, headers={"x-api-key": KEY}, timeout=15)


def rendered(live: LiveServer) -> str:
    return live.engine.tokenizer.decode(live.engine.requests[-1][0], skip_special_tokens=False)


def test_whole_and_streamed_are_the_same(sdk: anthropic.Anthropic) -> None:
    fields: Any = {"model": MODEL, "messages": [USER], "max_tokens": 200}
    whole = sdk.messages.create(**fields)
    with sdk.messages.stream(**fields) as events:
        deltas = "".join(events.text_stream)
        streamed = events.get_final_message()
    assert whole.content[0].type == "text" and whole.content[0].text == deltas == ANSWER
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in whole.content]
    assert whole.stop_reason == streamed.stop_reason == "end_turn"
    assert whole.usage.to_dict() == streamed.usage.to_dict()
    assert whole.usage.output_tokens == len(ANSWER.encode()) + 1


def test_the_prompt_is_that_of_the_same_chat_and_its_length_is_told(live: LiveServer, sdk: anthropic.Anthropic) -> None:
    answer = sdk.messages.create(model=MODEL, system="Be brief.", messages=[USER], max_tokens=2)
    prompt = live.engine.requests[-1][0]
    messages = [{"role": "system", "content": "Be brief."}, USER]
    chat = {"messages": messages, "max_tokens": 2}
    httpx.post(f"{live.url}/v1/chat/completions", json=chat, headers={"x-api-key": KEY})
    assert live.engine.requests[-1][0] == prompt
    usage = answer.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == len(prompt)
    assert sdk.messages.count_tokens(model=MODEL, system="Be brief.", messages=[USER]).input_tokens == len(prompt)


def test_tokens_are_counted_beyond_the_context(sdk: anthropic.Anthropic) -> None:
    message: Any = {"role": "user", "content": "x" * 4000}
    assert sdk.messages.count_tokens(model=MODEL, messages=[message], tools=[TOOL]).input_tokens > 4000


def test_events_bear_their_names(live: LiveServer) -> None:
    blocks = ask(live, stream=True).text.split("\n\n")[:-1]
    pairs = [block.removeprefix("event: ").split("\ndata: ") for block in blocks]
    assert all(name == json.loads(data)["type"] for name, data in pairs)
    names = [name for name, _ in pairs]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[3:-3]) == {"content_block_delta"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "stop_reason", "stop_sequence"),
    [
        ({"max_tokens": 3}, "max_tokens", None),
        ({"stop_sequences": ["emoji", "nowhere"]}, "stop_sequence", "emoji"),
        ({"stop_sequences": ["nowhere"]}, "end_turn", None),
    ],
)
def test_stop_reasons(
    sdk: anthropic.Anthropic, fields: dict[str, Any], stop_reason: str, stop_sequence: str | None, stream: bool
) -> None:
    asked: Any = {"model": MODEL, "messages": [USER], "max_tokens": 200, **fields}
    if stream:
        with sdk.messages.stream(**asked) as events:
            message: Any = events.get_final_message()
    else:
        message = sdk.messages.create(**asked)
    assert (message.stop_reason, message.stop_sequence) == (stop_reason, stop_sequence)
    assert stop_sequence is None or message.content[0].text == ANSWER[: ANSWER.index(stop_sequence)]


def test_thoughts_and_calls_come_as_blocks(sdk: anthropic.Anthropic) -> None:
    choice: Any = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    fields: Any = {"model": MODEL, "messages": [USER], "max_tokens": 9, "tools": [TOOL], "tool_choice": choice}
    with scripted(route, THINK_TALK_CALL, "tool_calls") as asked:
        whole = sdk.messages.create(**fields)
        with sdk.messages.stream(**fields) as events:
            streamed = events.get_final_message()
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in whole.content]
    assert whole.stop_reason == streamed.stop_reason == "tool_use"
    assert whole.usage.output_tokens_details is not None and whole.usage.output_tokens_details.thinking_tokens == 7
    assert whole.usage == streamed.usage
    assert asked[0].tool_choice == NamedTool("weather") and asked[0].parallel_tool_calls is False
    assert asked[0].tools[0]["function"]["parameters"] == TOOL["input_schema"]


@pytest.mark.parametrize(
    ("answer", "fields", "expected"),
    [
        (CALL, {}, [("tool_use", WEATHER)]),
        (f"Wait.\n{CALL}", {}, [("text", "Wait."), ("tool_use", WEATHER)]),
        (f"<think>Hm.</think>Yes.\n{CALL}", {}, [("thinking", "Hm."), ("text", "Yes."), ("tool_use", WEATHER)]),
        (f"{CALL}\n{CALL}", {}, [("tool_use", WEATHER)] * 2),
        (f"{CALL}\n{CALL}", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, [("tool_use", WEATHER)]),
        (f"{CALL}\nSo.", {}, [("tool_use", WEATHER), ("text", "\nSo.")]),
        ("<think>Hm.</think>Yes.", {"tools": []}, [("thinking", "Hm."), ("text", "Yes.")]),
        ("<think>Hm", {"max_tokens": 9}, [("thinking", "Hm")]),
        (CALL, {"tool_choice": {"type": "none"}}, [("text", CALL)]),
    ],
)
def test_what_models_write_is_the_same_whole_and_streamed(
    live: LiveServer, sdk: anthropic.Anthropic, answer: str, fields: dict[str, Any], expected: list[Any]
) -> None:
    live.engine.answer = answer
    try:
        asked: Any = {"model": MODEL, "messages": [USER], "max_tokens": 200, "tools": [TOOL], **fields}
        whole = sdk.messages.create(**asked)
        with sdk.messages.stream(**asked) as events:
            streamed: Any = events.get_final_message()
    finally:
        live.engine.answer = ANSWER
    for message in (whole, streamed):
        assert [said_by(block) for block in message.content] == expected
    assert (whole.stop_reason, whole.usage.to_dict()) == (streamed.stop_reason, streamed.usage.to_dict())
    ends = {"tool_use"} if any(kind == "tool_use" for kind, _ in expected) else {"end_turn", "max_tokens"}
    assert whole.stop_reason in ends


def said_by(block: Any) -> tuple[str, Any]:
    return block.type, block.input if block.type == "tool_use" else getattr(block, block.type)


def test_what_came_out_goes_back_in_twice(sdk: anthropic.Anthropic) -> None:
    conversation: list[Any] = [USER]
    for _ in range(2):
        with scripted(route, THINK_TALK_CALL, "tool_calls"):
            answer = sdk.messages.create(model=MODEL, messages=conversation, max_tokens=9, tools=[TOOL])
        calls = [block for block in answer.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"} for call in calls]
        conversation += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    with scripted(route, [said("Well.")], "stop") as asked:
        sdk.messages.create(model=MODEL, messages=conversation, max_tokens=9)
    assert [message["role"] for message in asked[0].messages] == ["user", *["assistant", "tool", "tool"] * 2]
    turn = asked[0].messages[4]
    assert (turn["content"], turn["reasoning_content"]) == ("I will ask.", "Let me look.")
    assert [call["function"]["arguments"] for call in turn["tool_calls"]] == [{"city": "Bern"}, {}]


@pytest.mark.parametrize(
    ("thinking", "lets_think"),
    [({"type": "enabled", "budget_tokens": 1024}, True), ({"type": "adaptive"}, True), ({"type": "disabled"}, False)],
)
def test_thinking_reaches_the_template(sdk: anthropic.Anthropic, thinking: Any, lets_think: bool) -> None:
    with scripted(route, [said("x")], "stop") as asked:
        sdk.messages.create(model=MODEL, messages=[USER], max_tokens=2000, thinking=thinking)
        sdk.messages.create(model=MODEL, messages=[USER], max_tokens=2000)
    assert asked[0].template.kwargs == {"enable_thinking": lets_think} and asked[1].template.kwargs == {}


def test_a_message_of_the_assistant_at_the_end_is_continued(live: LiveServer, sdk: anthropic.Anthropic) -> None:
    begun: Any = {"role": "assistant", "content": "I think"}
    sdk.messages.create(model=MODEL, messages=[USER, begun], max_tokens=2)
    assert rendered(live).endswith("<|im_start|>assistant\nI think")


def test_an_answer_with_a_form(sdk: anthropic.Anthropic) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    config: Any = {"format": {"type": "json_schema", "schema": schema}}
    with scripted(route, [said('{"a": 1}')], "stop") as asked:
        sdk.messages.create(model=MODEL, messages=[USER], max_tokens=9, output_config=config)
    assert asked[0].form is not None and asked[0].form.json == schema


def test_fields_reach_the_engine(live: LiveServer) -> None:
    user_id = "u" * 500
    answer = ask(live, top_k=3, top_p=0.5, temperature=0.7, seed=1, stop_sequences=["x"], metadata={"user_id": user_id})
    assert answer.status_code == 200, answer.text
    params = live.engine.requests[-1][1]
    assert (params.top_k, params.top_p, params.temperature, params.seed, params.stop) == (3, 0.5, 0.7, 1, ["x"])
    ask(live, metadata={"user_id": "me"})
    assert live.engine.tenants[-1] == "me" and len(live.engine.tenants[-2]) == 64


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": None}, "max_tokens is null"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"messages": []}, "messages is empty"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": "x" * 2100}]}, "maximum context length"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "f", "input_schema": []}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": {"a": 1}}, "tools must be a list"),
        ({"tool_choice": {"type": "any"}}, "tool_choice needs tools"),
        ({"tool_choice": "any"}, "tool_choice must be an object"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": ["any"]}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}, "disable_parallel_tool_use"),
        ({"stop_sequences": [""]}, "stop_sequences contains an empty text"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop": ["x"]}, "stop_sequences"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "display": "omitted"}}, "thinking.display"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"container": "c"}, "container"),
        ({"context_management": {"edits": [{}]}}, "context_management"),
        ({"n": 2}, "n is not supported"),
        ({"temperature": "hot"}, "temperature"),
        ({"mesages": [1]}, "mesages"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_is_refused_by_name(live: LiveServer, fields: dict[str, Any], named: str, stream: bool) -> None:
    answer = ask(live, stream=stream, **fields)
    assert answer.status_code == 400, answer.text
    body = answer.json()
    assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    assert named in body["error"]["message"] and len(answer.text) < 700


@pytest.mark.parametrize("value", [None, "", [], {}, False])
def test_empty_values_ask_for_nothing(live: LiveServer, value: Any) -> None:
    names = ["system", "tools", "tool_choice", "thinking", "metadata", "stop_sequences", "output_config", "cache_control", "n"]
    names += ["container", "mcp_servers", "stream", "top_k", "a_field_of_tomorrow", "service_tier", "model"]
    assert ask(live, **dict.fromkeys(names, value)).status_code == 200


def test_every_error_has_the_shape_of_the_route(live: LiveServer, sdk: anthropic.Anthropic) -> None:
    fields: Any = {"messages": [USER], "max_tokens": 5}
    with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
        sdk.messages.create(model="other", **fields)
    with pytest.raises(anthropic.AuthenticationError, match="authentication_error"):
        sdk.with_options(api_key="wrong").messages.create(model=MODEL, **fields)
    with pytest.raises(anthropic.APIStatusError, match="request_too_large") as refused:
        sdk.messages.create(model=MODEL, max_tokens=5, messages=[{"role": "user", "content": "x" * 2**17}])
    assert refused.value.status_code == 413
    live.engine.fail_first = OverloadedError("the queue is full", retry_after_s=3)
    try:
        for stream in (False, True):
            with pytest.raises(anthropic.RateLimitError, match="rate_limit_error"):
                sdk.messages.create(model=MODEL, stream=stream, **fields)
    finally:
        live.engine.fail_first = None
    live.engine.is_dead = True
    try:
        with pytest.raises(anthropic.APIStatusError, match="overloaded_error") as refused:
            sdk.messages.create(model=MODEL, **fields)
    finally:
        live.engine.is_dead = False
    assert refused.value.status_code == 503
    for method, path, status in (("GET", "/v1/messages", 405), ("POST", "/v1/messages/batches", 404)):
        answer = httpx.request(method, live.url + path, headers={"x-api-key": KEY})
        assert answer.status_code == status and answer.json()["type"] == "error"


def test_errors_after_the_first_token_are_an_event(live: LiveServer, sdk: anthropic.Anthropic) -> None:
    live.engine.fail_after_tokens = 4
    try:
        with pytest.raises(anthropic.APIStatusError, match="api_error") as failed:
            list(sdk.messages.create(model=MODEL, messages=[USER], max_tokens=50, stream=True))
    finally:
        live.engine.fail_after_tokens = None
    assert "fake engine broke" not in str(failed.value)


def test_the_key_may_come_in_either_header(live: LiveServer) -> None:
    def status(**headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.get(f"{live.url}/v1/models", headers=named).status_code

    assert status(x_api_key=KEY) == status(authorization=f"Bearer {KEY}") == 200
    assert (
        status(x_api_key=KEY, authorization=f"Bearer {KEY}") == status(x_api_key="none", authorization=f"Bearer {KEY}") == 200
    )
    assert status(x_api_key="wrong") == status(x_api_key=KEY, authorization="Bearer wrong") == status() == 401


def test_a_client_that_leaves_ends_its_request(live: LiveServer) -> None:
    live.call(live.engine.release.clear)
    body = {"messages": [USER], "max_tokens": 50, "stream": True}
    try:
        with httpx.stream("POST", f"{live.url}/v1/messages", json=body, headers={"x-api-key": KEY}) as answer:
            assert next(answer.iter_lines()) == "event: message_start"
        while live.engine.running:
            live.call(live.engine.deliver_one)
        assert live.engine.aborted[-1].startswith("msg_")
    finally:
        live.call(live.engine.release.set)
