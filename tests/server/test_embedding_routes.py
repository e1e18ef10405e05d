"""/v1/embeddings, /v1/score and /v1/rerank with the fake engine, whose vectors count token ids modulo 8."""

from __future__ import annotations

import base64
import math
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from tests.server.conftest import MAX_BODY_SIZE, MODEL, LiveServer, live_server

from octavo.config.server import ServerConfig


@pytest.fixture(scope="module")
def shared() -> Iterator[LiveServer]:
    """One server for all tests here."""
    with live_server(ServerConfig(max_body_size=MAX_BODY_SIZE)) as live:
        yield live


@pytest.fixture
def server(shared: LiveServer) -> LiveServer:
    """It, as if new."""
    shared.engine.pooled.clear()
    shared.engine.aborted.clear()
    shared.call(shared.engine.release.set)
    return shared


def post(http: httpx.Client, path: str, **body: Any) -> httpx.Response:
    return http.post(path, json=body)


def counts(ids: list[int]) -> list[float]:
    found: list[float] = np.bincount(np.array(ids) % 8, minlength=8).astype(float).tolist()
    return found


def test_the_sdk_reads_floats_and_base64_alike(server: LiveServer, client: openai.OpenAI) -> None:
    texts = ["one", "two words", "one"]
    plain = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    packed = client.embeddings.create(model=MODEL, input=texts)
    assert [entry.index for entry in plain.data] == [0, 1, 2]
    assert plain.data[0].embedding == plain.data[2].embedding != plain.data[1].embedding
    for one, other in zip(plain.data, packed.data, strict=True):
        np.testing.assert_array_equal(np.array(one.embedding, np.float32), np.array(other.embedding, np.float32))
        assert math.isclose(sum(number**2 for number in one.embedding), 1, rel_tol=1e-5)
    num_tokens = sum(map(len, (text.encode() for text in texts)))
    assert (plain.usage.prompt_tokens, plain.usage.total_tokens) == (num_tokens, num_tokens)
    assert (plain.model, plain.object) == (MODEL, "list")
    assert len(server.engine.pooled) == 6


def test_base64_is_little_endian_float32(http: httpx.Client) -> None:
    answer = post(http, "/v1/embeddings", input=[1, 1, 2], encoding_format="base64", normalize=False).json()
    raw = base64.b64decode(answer["data"][0]["embedding"])
    assert np.frombuffer(raw, "<f4").tolist() == counts([1, 1, 2])
    assert answer["id"].startswith("embd-") and answer["data"][0]["object"] == "embedding"


@pytest.mark.parametrize(
    ("value", "prompts"),
    [
        ("ab", [b"ab"]),
        (["ab", "c"], [b"ab", b"c"]),
        ([97, 98.0], None),
        ([[97, 98], [99]], None),
    ],
)
def test_every_form_of_input(server: LiveServer, http: httpx.Client, value: Any, prompts: Any) -> None:
    answer = post(http, "/v1/embeddings", input=value)
    assert answer.status_code == 200, answer.text
    taken = [prompt for prompt, _ in server.engine.pooled]
    if prompts is None:
        assert sorted(taken) == ([[97, 98]] if len(taken) == 1 else [[97, 98], [99]])
    else:
        assert sorted(server.engine.tokenizer.tokens_to_bytes(ids) for ids in taken) == prompts


def test_messages_are_rendered_without_an_answer_begun(server: LiveServer, http: httpx.Client) -> None:
    answer = post(http, "/v1/embeddings", messages=[{"role": "user", "content": "hi"}])
    assert answer.status_code == 200, answer.text
    (prompt, _), tokenizer = server.engine.pooled[0], server.engine.tokenizer
    assert tokenizer.decode(prompt, skip_special_tokens=False) == "<|im_start|>user\nhi<|im_end|>\n"


def test_dimensions_and_normalize_reach_the_engine(http: httpx.Client) -> None:
    def embed(**fields: Any) -> list[float]:
        answer = post(http, "/v1/embeddings", input=[1, 1, 1, 3], **fields)
        assert answer.status_code == 200, answer.text
        numbers: list[float] = answer.json()["data"][0]["embedding"]
        return numbers

    assert embed(normalize=False) == embed(use_activation=False) == counts([1, 1, 1, 3])
    assert embed(dimensions=3, normalize=False) == [0, 3, 0]
    assert embed(dimensions=3) == [0, 1, 0]
    assert embed(truncate_prompt_tokens=2, normalize=False) == [0, 2, 0, 0, 0, 0, 0, 0]
    assert embed(user="u", priority=0, model=MODEL, encoding_format="float", service_tier="auto") == embed()


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({}, "input", "give either input or messages"),
    ({"input": "a", "messages": [{"role": "user", "content": "x"}]}, "input", "give either"),
    ({"input": ""}, "input", "input is empty"),
    ({"input": []}, "input", "empty list"),
    ({"input": ["a", ""]}, "input", r"input\[1\] is empty"),
    ({"input": [[]]}, "input", "is empty"),
    ({"input": [[1], []]}, "input", r"input\[1\] is empty"),
    ({"input": None}, "input", "give either"),
    ({"input": 5}, "input", "must be a string"),
    ({"input": {"a": 1}}, "input", "must be a string"),
    ({"input": ["a", 1]}, "input", "must be a string"),
    ({"input": ["a", [1]]}, "input", "must be a string"),
    ({"input": [True]}, "input", "must be a string"),
    ({"input": [1, 260]}, "input", "token id 260"),
    ({"input": [[-1]]}, "input", "token id -1"),
    ({"input": [[10**30]]}, "input", "64 bits"),
    ({"input": [1.5]}, "input", "mixes token ids"),
    ({"input": [["a"]]}, "input", "mixes token ids"),
    ({"input": "x" * 513}, "input", "maximum context length is 512 tokens; input has 513 tokens"),
    ({"input": "x" * 60000}, "input", "maximum context length is"),
    ({"input": [[1] * 513]}, "input", "maximum context length is"),
    ({"input": ["a"] * 2049}, "input", "2049 entries; at most 2048"),
    ({"input": "a", "dimensions": 0}, "dimensions", "1 to 8"),
    ({"input": "a", "dimensions": 9}, "dimensions", "1 to 8"),
    ({"input": "a", "dimensions": "4"}, "dimensions", "whole number"),
    ({"input": "a", "dimensions": 1.5}, "dimensions", "whole number"),
    ({"input": "a", "encoding_format": "int8"}, "encoding_format", "float"),
    ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "1 to 512"),
    ({"input": "a", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "1 to 512"),
    ({"input": "a", "truncate_prompt_tokens": 513}, "truncate_prompt_tokens", "1 to 512"),
    ({"input": "a", "normalize": "no"}, "normalize", "true or false"),
    ({"input": "a", "normalize": True, "use_activation": False}, "normalize", "one setting"),
    ({"input": "a", "priority": 3}, "priority", "would ignore it"),
    ({"input": "a", "inputs": "b"}, "inputs", "did you mean 'input'"),
    ({"input": "a", "temperature": 1}, "temperature", "unknown field"),
]


def test_a_bad_body_is_a_400_naming_the_field(http: httpx.Client) -> None:
    for body, param, message in BAD:
        answer = post(http, "/v1/embeddings", **body)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["type"]) == (400, param, "invalid_request_error"), (body, error)
        assert re.search(message, error["message"]), error["message"]


def test_numbers_that_json_does_not_have_are_a_400(http: httpx.Client) -> None:
    for text in ('{"input": [NaN]}', '{"input": "a", "dimensions": NaN}', '{"input": [1e999]}'):
        answer = http.post("/v1/embeddings", content=text, headers={"content-type": "application/json"})
        assert answer.status_code == 400, text


def test_an_unknown_model_is_a_404(http: httpx.Client) -> None:
    for path, body in (("embeddings", {"input": "a"}), ("score", {"text_1": "a", "text_2": "b"})):
        assert post(http, f"/v1/{path}", model="other", **body).status_code == 404
    assert post(http, "/v1/rerank", model="other", query="a", documents=["b"]).status_code == 404


def test_many_texts_take_half_of_the_seats(server: LiveServer, http: httpx.Client) -> None:
    server.call(server.engine.release.clear)
    results: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: results.append(post(http, "/v1/embeddings", input=[[i] for i in range(100)])))
    thread.start()
    server.run(server.engine.wait_until_running(32))
    server.call(server.engine.release.set)
    thread.join(15)
    data = results[0].json()["data"]
    assert [entry["index"] for entry in data] == list(range(100))
    assert [entry["embedding"][i % 8] for i, entry in enumerate(data)] == [1.0] * 100


def test_a_client_that_leaves_aborts_what_runs(server: LiveServer) -> None:
    server.call(server.engine.release.clear)
    body = b'{"input": ["a", "b", "c"]}'
    with server.connect() as connection:
        lines = ("POST /v1/embeddings HTTP/1.1", "host: x", "content-type: application/json", f"content-length: {len(body)}")
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        server.run(server.engine.wait_until_running(3))
    server.run(server.engine.wait_until_running(0))
    assert len(server.engine.aborted) == 3


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_scores_are_cosines(http: httpx.Client, path: str) -> None:
    answer = post(http, path, text_1="ab", text_2=["ab", "ij", "cd", "ac"]).json()
    scores = [entry["score"] for entry in answer["data"]]
    np.testing.assert_allclose(scores, [1, 1, 0, 0.5], atol=1e-6)  # "i" is "a" + 8
    assert [entry["index"] for entry in answer["data"]] == [0, 1, 2, 3] and answer["data"][0]["object"] == "score"
    assert answer["usage"] == {"prompt_tokens": 10, "completion_tokens": 0, "total_tokens": 10}
    pairs = post(http, path, queries=["ab", "cd"], documents=["ab", "ab"], model=MODEL).json()
    np.testing.assert_allclose([entry["score"] for entry in pairs["data"]], [1, 0], atol=1e-6)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_come_in_the_order_of_their_likeness(http: httpx.Client, path: str) -> None:
    documents = ["cd", "ac", "ab", {"text": "ij"}]
    answer = post(http, path, query="ab", documents=documents, model=MODEL).json()
    assert [entry["index"] for entry in answer["results"]] == [2, 3, 1, 0]
    assert answer["results"][1]["document"] == {"text": "ij"} and answer["id"].startswith("rerank-")
    scores = [entry["relevance_score"] for entry in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert answer["usage"] == {"prompt_tokens": 10, "total_tokens": 10} and answer["model"] == MODEL
    short = post(http, path, query="ab", documents=documents, top_n=2, return_documents=False).json()["results"]
    assert [set(entry) for entry in short] == [{"index", "relevance_score"}] * 2 and [e["index"] for e in short] == [2, 3]
    assert len(post(http, path, query="ab", documents=documents, top_n=99).json()["results"]) == 4


BAD_PAIRS: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/score", {"text_1": "a"}, "text_1"),
    ("/v1/score", {"text_1": "a", "documents": ["b"]}, "text_1"),
    ("/v1/score", {"text_1": ["a", "b"], "text_2": ["c"]}, "text_1"),
    ("/v1/score", {"text_1": [], "text_2": ["c"]}, "text_1"),
    ("/v1/score", {"text_1": "", "text_2": ["c"]}, "text_1"),
    ("/v1/score", {"text_1": "a", "text_2": [3]}, "text_2"),
    ("/v1/score", {"text_1": "a", "text_2": ["x" * 600]}, "text_2"),
    ("/v1/score", {"text_1": "a", "text_2": ["b"] * 2049}, "text_2"),
    ("/v1/rerank", {"query": "a"}, "documents"),
    ("/v1/rerank", {"documents": ["a"]}, "query"),
    ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
    ("/v1/rerank", {"query": "", "documents": ["b"]}, "query"),
    ("/v1/rerank", {"query": "a", "documents": ["b", ""]}, "documents"),
    ("/v1/rerank", {"query": "a", "documents": [{"text": 5}]}, "documents"),
    ("/v1/rerank", {"query": "a", "documents": [{"image": "b"}]}, "documents"),
    ("/v1/rerank", {"query": ["a"], "documents": ["b"]}, "query"),
    ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n"),
]


def test_bad_pairs_are_a_400_naming_the_field(http: httpx.Client) -> None:
    for path, body, param in BAD_PAIRS:
        answer = post(http, path, **body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), (body, answer.text)


def test_without_a_head_there_is_no_chat(server: LiveServer, http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    model_config = server.engine.model_config
    monkeypatch.setattr(server.engine, "model_config", replace(model_config, has_head=False))
    messages = [{"role": "user", "content": "hi"}]
    bodies: dict[str, dict[str, Any]] = {
        "/v1/completions": {"prompt": "hi"},
        "/v1/chat/completions": {"messages": messages, "stream": True},
        "/v1/responses": {"input": "hi"},
        "/v1/messages": {"messages": messages, "max_tokens": 4},
        "/api/chat": {"model": MODEL, "messages": messages},
        "/api/generate": {"model": MODEL, "prompt": "hi"},
    }
    for path, body in bodies.items():
        answer = post(http, path, **body)
        assert answer.status_code == 400 and "generates no text" in answer.text and "/v1/embeddings" in answer.text, answer.text
    assert post(http, "/v1/embeddings", input="hi").status_code == 200
