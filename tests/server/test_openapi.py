"""/openapi.json: what the server takes is valid by it, and what is not valid is refused by both."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema  # type: ignore[import-untyped]
import pytest
from tests.fuzz.bodies import BODIES

USER = {"role": "user", "content": "ab"}
TAKEN: list[tuple[str, dict[str, Any]]] = [
    *BODIES.items(),
    ("/v1/completions", {"prompt": "a", "stop": "b"}),
    ("/v1/completions", {"prompt": [1, 2], "stop": ["b"], "logprobs": None}),
    ("/v1/completions", {"prompt": [[1], [2]]}),
    ("/v1/embeddings", {"messages": [USER]}),
    ("/v1/score", {"queries": ["a"], "documents": ["b"]}),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "tool_choice": "none"},
    ),
    ("/v1/responses", {"input": "a"}),
    ("/v1/messages", {"messages": [USER], "max_tokens": 1, "system": [{"type": "text", "text": "a"}]}),
]
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": "a", "min_tokens": 2**40}),
    ("/v1/completions", {"prompt": "a", "logprobs": -1}),
    ("/v1/completions", {"prompt": "a", "allowed_token_ids": [-1]}),
    ("/v1/completions", {"prompt": {"text": "a"}}),
    ("/v1/completions", {"prompt": []}),
    ("/v1/chat/completions", {"messages": []}),
    ("/v1/chat/completions", {"messages": [{"role": "nobody", "content": "a"}]}),
    ("/v1/chat/completions", {"messages": ["a"]}),
    ("/v1/chat/completions", {"messages": [USER], "tools": [{"type": "function"}]}),
    ("/v1/chat/completions", {"messages": [USER], "tool_choice": "always"}),
    ("/v1/embeddings", {"input": 5}),
    ("/v1/rerank", {"query": "a", "documents": []}),
    ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": -1}),
    ("/v1/responses", {"input": []}),
    ("/v1/messages", {"messages": [], "max_tokens": 1}),
    ("/tokenize", {"messages": {"role": "user"}}),
    ("/detokenize", {"tokens": "1"}),
    ("/api/embed", {"input": 5}),
]


@pytest.fixture
def schemas(http: httpx.Client) -> dict[str, Any]:
    paths = http.get("/openapi.json").json()["paths"]
    posts = {path: methods["post"] for path, methods in paths.items() if "requestBody" in methods.get("post", {})}
    return {path: post["requestBody"]["content"]["application/json"]["schema"] for path, post in posts.items()}


@pytest.mark.parametrize(("path", "body"), TAKEN)
def test_what_is_taken_is_valid(schemas: dict[str, Any], path: str, body: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(schemas[path]).validate(body)


@pytest.mark.parametrize(("path", "body"), REFUSED)
def test_what_is_not_valid_is_refused(http: httpx.Client, schemas: dict[str, Any], path: str, body: dict[str, Any]) -> None:
    assert not jsonschema.Draft202012Validator(schemas[path]).is_valid(body)
    assert http.post(path, json=body).status_code == 400
