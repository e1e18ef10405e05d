"""Ollama's API over the fake engine: what its own client and others send, and what they read of the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import httpx
import ollama
import pytest
from tests.fakes_server import ANSWER
from tests.server.conftest import MODEL, LiveServer, live_server
from tests.unit.dialogue.recorded import SEOUL, TOOLS

from octavo.config.server import ServerConfig

HELLO = [{"role": "user", "content": "Hello"}]
CALL = {"function": {"name": "get_weather", "arguments": {"city": "Kyoto"}}}

OTHER_CALL: dict[str, Any] = {"function": {"name": "b", "arguments": {}}}


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    with live_server(ServerConfig(max_body_size=2**16)) as server:
        yield server


@pytest.fixture
def http(live: LiveServer) -> Iterator[httpx.Client]:
    live.engine.requests.clear()
    with httpx.Client(base_url=live.url, timeout=15) as client:
        yield client


@pytest.fixture
def client(live: LiveServer) -> Iterator[ollama.Client]:
    with ollama.Client(live.url, timeout=15) as made:
        yield made


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.parametrize(("path", "body"), [("/api/chat", {"messages": HELLO}), ("/api/generate", {"prompt": "Hello"})])
def test_an_answer_streams_unless_it_is_asked_for_whole(path: str, body: dict[str, Any], http: httpx.Client) -> None:
    def text(part: dict[str, Any]) -> str:
        return str(part["message"]["content"] if path == "/api/chat" else part["response"])

    parts = lines_of(http.post(path, json={"model": MODEL, **body}))
    whole = http.post(path, json={"model": MODEL, **body, "stream": False}).json()
    assert "".join(map(text, parts)) == text(whole) == ANSWER
    assert [part["done"] for part in parts] == [False] * (len(parts) - 1) + [True]
    for end in (parts[-1], whole):
        assert (end["done_reason"], end["model"], end["prompt_eval_count"] > 4) == ("stop", MODEL, True)
        assert end["eval_count"] == len(ANSWER.encode()) + 1
        assert 0 <= end["load_duration"] <= end["total_duration"] and end["eval_duration"] >= 0
        assert datetime.fromisoformat(end["created_at"].replace("Z", "+00:00")).tzinfo is not None
    assert "eval_count" not in parts[0]


def test_the_clients_parse_every_answer(client: ollama.Client) -> None:
    whole = client.chat(MODEL, HELLO)
    assert whole.message.content == ANSWER and whole.done_reason == "stop" and whole.eval_count
    assert "".join(part.message.content or "" for part in client.chat(MODEL, HELLO, stream=True)) == ANSWER
    assert client.generate(MODEL, "Hi", system="Be brief.").response == ANSWER
    assert "".join(part.response or "" for part in client.generate(MODEL, "Hi", raw=True, stream=True)) == ANSWER
    assert [model.model for model in client.list().models] == [f"{MODEL}:latest"]
    assert client.ps().models[0].context_length == 512
    shown = client.show(MODEL)
    assert shown.details is not None and shown.details.family == "fake" and shown.capabilities == ["completion", "tools"]
    assert shown.modelinfo is not None and shown.modelinfo["fake.context_length"] == 512
    assert client.pull(MODEL).status == "success" and [part.status for part in client.pull(MODEL, stream=True)][-1] == "success"
    with pytest.raises(ollama.ResponseError, match="model 'other' not found") as error:
        client.chat("other", HELLO)
    assert error.value.status_code == 404


def test_the_prompt_is_that_of_a_chat_and_raw_is_as_it_stands(live: LiveServer, http: httpx.Client) -> None:
    messages = [{"role": "system", "content": "S"}, *HELLO]
    http.post("/v1/chat/completions", json={"messages": messages})
    http.post("/api/chat", json={"messages": messages})
    http.post("/api/generate", json={"prompt": "Hello", "system": "S"})
    http.post("/v1/completions", json={"prompt": "Hello"})
    http.post("/api/generate", json={"prompt": "Hello", "raw": True})
    prompts = [request[0] for request in live.engine.requests]
    assert prompts[0] == prompts[1] == prompts[2] and prompts[3] == prompts[4]


@pytest.mark.parametrize("name", [MODEL, f"{MODEL}:latest", "", None])
def test_a_name_with_and_without_its_tag_is_the_model(name: str | None, http: httpx.Client) -> None:
    answer = http.post("/api/chat", json={"model": name, "messages": HELLO, "stream": False})
    assert answer.status_code == 200 and answer.json()["model"] == (name or MODEL)


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"num_predict": 7}, "max_tokens", 7),
        ({"num_predict": -1}, "max_tokens", None),
        ({"num_predict": -2}, "max_tokens", None),
        ({}, "max_tokens", None),
        ({"temperature": 0}, "temperature", 0.0),
        ({"top_k": 40, "top_p": 0.9, "min_p": 0.1}, "top_p", 0.9),
        ({"repeat_penalty": 1.1, "repeat_last_n": 64}, "repetition_penalty", 1.1),
        ({"presence_penalty": 0.5}, "presence_penalty", 0.5),
        ({"frequency_penalty": 0.5}, "frequency_penalty", 0.5),
        ({"seed": 7}, "seed", 7),
        ({"seed": -1}, "seed", None),
        ({"stop": ["a", "b"]}, "stop", ["a", "b"]),
        ({"stop": "a"}, "stop", ["a"]),
        ({"num_ctx": 4096, "num_thread": 8, "num_gpu": 99, "use_mmap": True, "mirostat": 0, "tfs_z": 1.0}, "top_k", 0),
    ],
)
@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_options_become_settings(
    path: str, options: dict[str, Any], field: str, value: object, live: LiveServer, http: httpx.Client
) -> None:
    said = {"messages": HELLO} if path == "/api/chat" else {"prompt": "x"}
    answer = http.post(path, json={**said, "options": options})
    assert answer.status_code == 200
    assert getattr(live.engine.requests[0][1], field) == value


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"options": {"num_predict": 0}}, "options.num_predict is 0"),
        ({"options": {"num_predict": -3}}, "options.num_predict is -3"),
        ({"options": {"top_p": 2}}, "options.top_p is 2"),
        ({"options": {"temperature": -1}}, "options.temperature"),
        ({"options": {"temperature": "hot"}}, "options.temperature"),
        ({"options": {"repeat_penalty": 0}}, "options.repeat_penalty"),
        ({"options": {"mirostat": 2}}, "options.mirostat"),
        ({"options": {"typical_p": 0.5}}, "options.typical_p"),
        ({"options": {"nonsense": 1}}, "options.nonsense"),
        ({"options": [1]}, "options is a list"),
        ({"format": "yaml"}, "format is 'yaml'"),
        ({"format": [1]}, "format is [1]"),
        ({"format": {"type": "nonsense"}}, "format"),
        ({"think": True}, "does not support thinking"),
        ({"think": "a lot"}, "think is 'a lot'"),
        ({"stream": "no"}, "stream"),
        ({"top_logprobs": 3}, "top_logprobs needs logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"n": 2}, "unknown field 'n'"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0].images"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "assistant", "content": "x", "thinking": 5}]}, "messages[0].thinking must be a string"),
        ({"keep_alive": [5]}, "keep_alive is a list; it must be a number or a string"),
        ({"keep_alive": {"a": 1}}, "keep_alive is an object; it must be a number or a string"),
        ({"messages": [7]}, "messages[0]"),
        ({"messages": {"role": "user"}}, "messages must be a list"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": {}}, ""),
        ({"tools": 7}, "tools must be a list"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(body: dict[str, Any], place: str, http: httpx.Client) -> None:
    answer = http.post("/api/chat", json={"messages": HELLO, **body})
    if place:
        assert answer.status_code == 400 and place in answer.json()["error"], answer.text
    else:
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"context": [1, 2, 3]}, "context"),
        ({"images": ["aGk="]}, "images"),
        ({"raw": True, "system": "S"}, "system"),
        ({"prompt": 7}, "prompt"),
    ],
)
def test_what_a_prompt_cannot_have_is_refused_by_name(body: dict[str, Any], place: str, http: httpx.Client) -> None:
    answer = http.post("/api/generate", json={"prompt": "x", **body})
    assert answer.status_code == 400 and place in answer.json()["error"]
    empty = {name: type(value)() for name, value in body.items() if name != "prompt"}
    assert http.post("/api/generate", json={"prompt": "x", **empty}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/chat", {"messages": []}),
        ("/api/chat", {"keep_alive": "5m"}),
        ("/api/generate", {"prompt": ""}),
        ("/api/generate", {"keep_alive": 0}),
    ],
)
def test_nothing_to_answer_says_that_the_model_is_loaded(
    path: str, body: dict[str, Any], live: LiveServer, http: httpx.Client
) -> None:
    answer = http.post(path, json={"model": MODEL, **body}).json()
    assert (answer["done"], answer["done_reason"], live.engine.requests) == (True, "load", [])


def test_logprobs_have_the_clients_form(client: ollama.Client) -> None:
    answer = client.chat(MODEL, HELLO, logprobs=True, top_logprobs=2, options={"num_predict": 3})
    assert answer.logprobs is not None and len(answer.logprobs) == 3 and answer.done_reason == "length"
    assert answer.logprobs[0].top_logprobs is not None and len(answer.logprobs[0].top_logprobs) == 2
    parts = list(client.chat(MODEL, HELLO, logprobs=True, stream=True, options={"num_predict": 3}))
    assert sum(len(part.logprobs or ()) for part in parts) == 3


def test_a_conversation_with_calls_and_results_is_taken_back(live: LiveServer, http: httpx.Client) -> None:
    messages: list[dict[str, Any]] = [
        *HELLO,
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [CALL, OTHER_CALL]},
        {"role": "tool", "content": "18 C", "tool_name": "get_weather"},
        {"role": "tool", "content": "yes", "name": "b"},
        {"role": "tool", "content": "spare"},
    ]
    messages = [{"images": [], **message} for message in messages]
    assert http.post("/api/chat", json={"messages": messages, "stream": False}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/api/create", 403),
        ("POST", "/api/copy", 403),
        ("POST", "/api/push", 403),
        ("DELETE", "/api/delete", 403),
        ("POST", "/api/blobs/sha256:0", 404),
        ("GET", "/api/nowhere", 404),
        ("GET", "/api/chat", 405),
        ("POST", "/api/tags", 405),
    ],
)
def test_errors_have_ollamas_shape(method: str, path: str, status: int, http: httpx.Client) -> None:
    answer = http.request(method, path, json={"model": MODEL})
    assert answer.status_code == status and isinstance(answer.json()["error"], str)


@pytest.mark.parametrize("path", ["/api/show", "/api/pull"])
def test_models_are_named_and_only_the_served_one_is_here(path: str, http: httpx.Client) -> None:
    assert http.post(path, json={"name": f"{MODEL}:latest", "stream": False}).status_code == 200
    assert http.post(path, json={"model": "llama3.2"}).status_code == 404
    assert http.post(path, json={}).json() == {"error": "model is required"}


def test_every_door_speaks_ollamas_language() -> None:
    with live_server(ServerConfig(api_key="secret", max_body_size=1024)) as server:
        url = f"{server.url}/api/chat"
        key = {"authorization": "Bearer secret"}
        assert isinstance(httpx.post(url, json={"messages": HELLO}).json()["error"], str)
        answers = [httpx.get(f"{server.url}/api/tags"), httpx.post(url, content=b"x" * 2000, headers=key)]
        answers += [httpx.post(url, content=body, headers=key) for body in (b"", b"{", b"[]", b"\xff", b'{"messages": NaN}')]
        server.engine.is_dead = True
        answers.append(httpx.post(url, json={"messages": HELLO}, headers=key))
        server.engine.is_dead = False
        server.app.state.context.inflight.close()
        answers.append(httpx.post(url, json={"messages": HELLO}, headers=key))
    assert [answer.status_code for answer in answers] == [401, 413, 400, 400, 400, 400, 400, 503, 503]
    assert all(isinstance(answer.json()["error"], str) for answer in answers)
    assert answers[-1].headers["retry-after"] == "1" and answers[0].headers["www-authenticate"] == "Bearer"


def test_an_error_under_way_is_the_last_line() -> None:
    with live_server(ServerConfig()) as server:
        server.engine.fail_after_tokens = 3
        parts = lines_of(httpx.post(f"{server.url}/api/generate", json={"prompt": "x"}))
        assert list(parts[-1]) == ["error"] and not any(part.get("done") for part in parts)
        with ollama.Client(server.url) as client, pytest.raises(ollama.ResponseError):
            list(client.chat(MODEL, HELLO, stream=True))


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_a_client_that_leaves_ends_its_request(path: str) -> None:
    with live_server(ServerConfig()) as server:
        server.call(server.engine.release.clear)
        body = {"messages": HELLO} if path == "/api/chat" else {"prompt": "x"}
        with httpx.stream("POST", f"{server.url}{path}", json=body) as answer:
            next(answer.iter_lines())
        while server.engine.running:
            server.call(server.engine.deliver_one)
        assert len(server.engine.aborted) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_root_says_what_desktop_programs_look_for(method: str, http: httpx.Client) -> None:
    answer = http.request(method, "/")
    assert answer.status_code == 200 and answer.text == ("Ollama is running" if method == "GET" else "")
    version = http.get("/api/version").json()["version"]
    assert [int(part) for part in version.split(".")] >= [0, 6, 4]


@pytest.fixture(scope="module")
def thinker() -> Iterator[LiveServer]:
    with live_server(ServerConfig(reasoning_parser="qwen3")) as server:
        server.engine.max_model_len = 1 << 20
        yield server


TOOL_TEXT = f'<tool_call>\n{{"name": "get_weather", "arguments": {SEOUL}}}\n</tool_call>'
NOW_TEXT = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def said_by(server: LiveServer, stream: bool, **fields: Any) -> tuple[str, str, list[tuple[str, Any]], str | None]:
    """(content, thinking, calls, done_reason) as Ollama's own client reads them."""
    with ollama.Client(server.url, timeout=15) as client:
        answer: Any = client.chat(MODEL, HELLO, stream=stream, **fields)
        parts = list(answer) if stream else [answer]
    content = "".join(part.message.content or "" for part in parts)
    thinking = "".join(part.message.thinking or "" for part in parts)
    calls = [(call.function.name, call.function.arguments) for part in parts for call in part.message.tool_calls or ()]
    return content, thinking, calls, parts[-1].done_reason


@pytest.mark.parametrize("stream", [False, True])
def test_calls_come_as_objects(stream: bool, thinker: LiveServer) -> None:
    thinker.engine.answer = f"I look.\n{TOOL_TEXT}\n{NOW_TEXT}"
    content, _, calls, reason = said_by(thinker, stream, tools=TOOLS)
    assert (content.strip(), reason) == ("I look.", "stop")
    assert calls == [("get_weather", json.loads(SEOUL)), ("now", {})]
    length = len(f"I look.\n{TOOL_TEXT}".encode()) - 20
    cut = said_by(thinker, stream, tools=TOOLS, options={"num_predict": length})
    assert (cut[2], cut[3]) == ([], "length")
    assert said_by(thinker, stream)[0] == thinker.engine.answer  # without tools it is text


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_is_apart_from_the_answer(stream: bool, thinker: LiveServer) -> None:
    thinker.engine.answer = "<think>\nFirst.\n</think>\n\nHello."
    for think in (None, True, "high"):
        content, thinking, _, _ = said_by(thinker, stream, think=think)
        assert (content.strip(), thinking.strip()) == ("Hello.", "First.")
    assert said_by(thinker, stream, think=False)[1] == ""
    with ollama.Client(thinker.url, timeout=15) as client:
        answer: Any = client.generate(MODEL, "x", think=True, stream=stream)
        parts = list(answer) if stream else [answer]
    assert "".join(part.thinking or "" for part in parts).strip() == "First."
    assert "thinking" in (httpx.post(f"{thinker.url}/api/show", json={"model": MODEL}).json()["capabilities"])


def test_texts_become_the_vectors_of_v1_embeddings(client: ollama.Client, http: httpx.Client) -> None:
    texts = ["one", "two words"]
    expected = [entry["embedding"] for entry in http.post("/v1/embeddings", json={"input": texts}).json()["data"]]
    answer = client.embed(MODEL, texts)
    assert [list(vector) for vector in answer.embeddings] == expected
    assert answer.prompt_eval_count == len("onetwo words") and (answer.total_duration or 0) > 0
    assert [list(vector) for vector in client.embed(MODEL, "one").embeddings] == expected[:1]
    short = http.post("/v1/embeddings", json={"input": "one", "dimensions": 3}).json()["data"][0]["embedding"]
    assert list(client.embed(MODEL, "one", dimensions=3).embeddings[0]) == short
    plain = http.post("/v1/embeddings", json={"input": "one", "normalize": False}).json()["data"][0]["embedding"]
    assert list(client.embeddings(MODEL, "one").embedding) == plain != expected[0]


def test_a_model_without_a_head_makes_vectors(live: LiveServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live.engine, "model_config", replace(live.engine.model_config, has_head=False))
    for path, body in (("/api/chat", {"messages": HELLO}), ("/api/generate", {"prompt": "x"})):
        answer = http.post(path, json=body)
        assert answer.status_code == 400 and "makes embeddings" in answer.json()["error"]
    assert http.post("/api/show", json={"model": MODEL}).json()["capabilities"] == ["embedding"]
    assert len(http.post("/api/embed", json={"input": "x"}).json()["embeddings"]) == 1


@pytest.mark.parametrize(
    ("path", "body", "status", "word"),
    [
        ("/api/embed", {"input": ""}, 200, '"embeddings":[]'),
        ("/api/embed", {"input": []}, 200, '"embeddings":[]'),
        ("/api/embeddings", {"prompt": ""}, 200, '"embedding":[]'),
        ("/api/embed", {"input": "x" * 2000}, 200, "embeddings"),
        ("/api/embed", {"input": "x" * 2000, "truncate": False}, 400, "maximum context length"),
        ("/api/embed", {"input": ["x", "x" * 600], "truncate": False}, 400, "or set truncate to true to use"),
        ("/api/embed", {"input": [1, 2]}, 400, "input must be"),
        ("/api/embed", {"input": {"a": "b"}}, 400, "input must be"),
        ("/api/embed", {"input": ["x", ""]}, 400, "input[1] is empty"),
        ("/api/embed", {"input": "x", "dimensions": 0}, 400, "dimensions"),
        ("/api/embed", {"input": "x", "model": "other"}, 404, "not found"),
        ("/api/embeddings", {"prompt": ["x"]}, 400, "prompt"),
    ],
)
def test_odd_texts_are_answered_or_refused(path: str, body: dict[str, Any], status: int, word: str, http: httpx.Client) -> None:
    answer = http.post(path, json=body)
    assert answer.status_code == status and word in answer.text


@pytest.mark.parametrize(
    ("path", "body"), [("/api/chat", {"messages": HELLO}), ("/api/generate", {"prompt": "Hello"}), ("/api/show", {})]
)
@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", "application/octet-stream"])
def test_the_content_type_is_not_read_unless_a_page_sends_it(
    path: str, body: dict[str, Any], content_type: str, http: httpx.Client
) -> None:
    content = json.dumps({"model": MODEL, "stream": False, **body})
    assert http.post(path, content=content, headers={"content-type": content_type}).status_code == 200
    page = http.post(path, content=content, headers={"content-type": content_type, "origin": "http://page.example"})
    assert page.status_code == 415
    assert "send application/json" in page.json()["error"]
