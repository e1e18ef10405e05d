"""Models, tokenize, health, metrics, version, request ids, the access log."""

from __future__ import annotations

import logging

import httpx
import openai
import prometheus_client
import pytest
from tests.server.conftest import MODEL, LiveServer, live_server

from octavo import __version__
from octavo.config.server import ServerConfig
from octavo.text.chat_template import ChatTemplate


def test_the_model_is_listed_and_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "octavo"


def test_tokenize_and_detokenize_are_inverse(http: httpx.Client) -> None:
    tokens = http.post("/tokenize", json={"prompt": "naïve 日本", "return_token_strs": True}).json()
    assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"])
    assert "".join(tokens["token_strs"]).startswith("naÃ¯veĠæ")  # as the vocabulary spells them
    assert tokens["max_model_len"] == 512
    assert http.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": "naïve 日本"}


def test_tokenize_renders_messages_as_chat_does(server: LiveServer, http: httpx.Client) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    tokens = http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    http.post("/v1/chat/completions", json={"messages": messages})
    assert server.engine.requests[0][0] == tokens


@pytest.mark.parametrize("body", [{}, {"prompt": "x", "messages": []}, {"messages": []}])
def test_tokenize_refuses_what_is_ambiguous(http: httpx.Client, body: dict[str, object]) -> None:
    assert http.post("/tokenize", json=body).status_code == 400


def test_health_tells_the_truth(server: LiveServer, http: httpx.Client) -> None:
    assert http.get("/health").status_code == 200
    server.engine.is_dead = True
    assert http.get("/health").status_code == 503
    assert http.get("/ready").json()["error"]["code"] == "engine_unavailable"


def test_metrics_are_the_engines(server: LiveServer, http: httpx.Client) -> None:
    prometheus_client.Counter("fake_things", "Things.", registry=server.engine.metrics).inc(3)
    answer = http.get("/metrics")
    assert "fake_things_total 3.0" in answer.text and answer.headers["content-type"].startswith("text/plain")


def test_version(http: httpx.Client) -> None:
    assert http.get("/version").json() == {"version": __version__}


def test_documentation_knows_the_bodies(http: httpx.Client) -> None:
    operation = http.get("/openapi.json").json()["paths"]["/v1/completions"]["post"]
    assert "prompt" in operation["requestBody"]["content"]["application/json"]["schema"]["properties"]


def test_request_id_is_echoed_when_well_formed(http: httpx.Client) -> None:
    assert http.get("/version", headers={"x-request-id": "abc-123"}).headers["x-request-id"] == "abc-123"
    strange = http.get("/version", headers={"x-request-id": "a b\t<script>"}).headers["x-request-id"]
    assert len(strange) == 16
    assert len(http.get("/nowhere").headers["x-request-id"]) == 16


def test_one_log_line_per_request_that_cannot_be_forged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "octavo.access"), live_server(ServerConfig()) as live:
        httpx.get(f"{live.url}/v1/models%0aGET%20/forged")
        httpx.get(f"{live.url}/health")
        httpx.get(f"{live.url}/version")
    lines = [record.getMessage() for record in caplog.records if record.name == "octavo.access"]
    assert len(lines) == 2 and "\n" not in lines[0] and " 404 " in lines[0]
    assert lines[1].startswith("GET /version 200 ")


def test_request_log_can_be_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "octavo.access"), live_server(ServerConfig(disable_log_requests=True)) as live:
        httpx.get(f"{live.url}/version")
    assert not [record for record in caplog.records if record.name == "octavo.access"]


def test_priority_is_honoured_where_the_policy_reads_it() -> None:
    with live_server(ServerConfig(), scheduler_policy="priority") as live:
        assert httpx.post(f"{live.url}/v1/completions", json={"prompt": "x", "priority": 3}).status_code == 200
        assert live.engine.requests[0][2] == 3


def test_a_model_may_have_several_names() -> None:
    names = ["one", "two", "three/four"]
    with live_server(ServerConfig(), model_names=names) as server, httpx.Client(base_url=server.url) as http:
        assert [card["id"] for card in http.get("/v1/models").json()["data"]] == names
        for name in names:
            assert http.get(f"/v1/models/{name}").json()["id"] == name
            assert http.post("/v1/completions", json={"model": name, "prompt": "x"}).json()["model"] == "one"
        assert http.post("/v1/completions", json={"model": "one, two,three/four", "prompt": "x"}).status_code == 404


def test_load_counts_the_requests_that_are_served(server: LiveServer, http: httpx.Client) -> None:
    server.call(server.engine.release.clear)
    assert http.get("/load").json() == {"server_load": 0}
    with http.stream("POST", "/v1/completions", json={"prompt": "x", "stream": True}):
        assert httpx.get(f"{server.url}/load").json() == {"server_load": 1}
        server.call(server.engine.release.set)


def test_tokenizer_info_is_there_when_it_was_asked_for(http: httpx.Client) -> None:
    assert http.get("/tokenizer_info").status_code == 404
    with live_server(ServerConfig(enable_tokenizer_info_endpoint=True)) as server:
        info = httpx.get(f"{server.url}/tokenizer_info").json()
        assert info["eos_token"] == "<|im_end|>" and "message['content']" in info["chat_template"]
        server.engine.chat_template = ChatTemplate.for_tokenizer(server.engine.tokenizer, "{{ messages[0].content }}")
        assert httpx.get(f"{server.url}/tokenizer_info").json()["chat_template"] == "{{ messages[0].content }}"
        assert info["added_tokens_decoder"]["258"] == {"content": "<|im_end|>", "special": True}
