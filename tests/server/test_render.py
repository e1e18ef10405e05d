"""Rendering: the token ids and settings that a request would have, and nothing is generated."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.server.conftest import MODEL, LiveServer

MESSAGES = [{"role": "system", "content": "S"}, {"role": "user", "content": "Grüße <|im_end|>"}]


@pytest.mark.parametrize(
    "change",
    [{}, {"temperature": 0.5, "seed": 3}, {"max_tokens": 9, "stream": True}, {"cache_salt": "pepper", "stop": ["a"]}],
)
def test_a_chat_renders_to_what_the_engine_is_asked(change: dict[str, Any], server: LiveServer, http: httpx.Client) -> None:
    body = {"model": MODEL, "messages": MESSAGES, **change}
    rendered = http.post("/v1/chat/completions/render", json=body).json()
    assert server.engine.requests == []
    http.post("/v1/chat/completions", json=body)
    (prompt, params, priority, salt) = server.engine.requests[0]
    assert rendered["token_ids"] == prompt
    assert rendered["prompt"] == server.engine.tokenizer.decode(prompt, skip_special_tokens=False)
    assert (rendered["model"], rendered["priority"], rendered["cache_salt"] or "") == (MODEL, priority, salt)
    settings = rendered["sampling_params"]
    assert settings["max_tokens"] == change.get("max_tokens", 512 - len(prompt))
    assert {name: getattr(params, name) for name in settings if name != "max_tokens"} == {
        name: value for name, value in settings.items() if name != "max_tokens"
    }
    assert rendered["stream"] is change.get("stream", False)


@pytest.mark.parametrize(("prompt", "count"), [("x", 1), (["x", "yz"], 2), ([1, 2, 3], 1), ([[1], [2, 3]], 2)])
def test_each_prompt_of_a_completion_is_rendered(prompt: object, count: int, server: LiveServer, http: httpx.Client) -> None:
    rendered = http.post("/v1/completions/render", json={"prompt": prompt}).json()
    assert len(rendered) == count == len({one["request_id"] for one in rendered}) and server.engine.requests == []
    http.post("/v1/completions", json={"prompt": prompt})
    assert sorted(one["token_ids"] for one in rendered) == sorted(request[0] for request in server.engine.requests)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("body", [{}, {"messages": [], "prompt": []}, {"prompt": 7, "messages": 7}, {"model": "other"}])
def test_what_would_be_refused_is_refused_alike(path: str, body: dict[str, Any], http: httpx.Client) -> None:
    answer, rendered = (http.post(f"{path}{end}", json=body) for end in ("", "/render"))
    assert answer.status_code == rendered.status_code >= 400 and answer.json() == rendered.json()
