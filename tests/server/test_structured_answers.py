"""Answers with a form from the real model over HTTP: parsed by the SDK, the same in a stream and whole."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import httpx
import openai
import pytest
from pydantic import BaseModel
from tests.served import Served


class Person(BaseModel):
    mood: Literal["happy", "sad"]
    age: Literal[1, 22, 333]


USER: Any = {"role": "user", "content": "Describe somebody as JSON."}


BOMBS: list[dict[str, Any]] = [
    {"guided_regex": "(a|b)*c" * 15000},
    {"guided_regex": "((a{500}){500}){500}"},
    {"guided_json": {"type": "array", "items": {"type": "integer"}, "minItems": 10**9, "maxItems": 10**9}},
    {"guided_json": {"enum": [f"x{i * 7919}" for i in range(60000)]}},
    {"guided_json": {"oneOf": [{"properties": {f"p{i}": {"type": "string"}}} for i in range(3000)]}},
    {"guided_json": {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}, "$ref": "#/$defs/a"}},
    {"guided_choice": [f"x{i * 7919}" for i in range(4096)]},
]


@pytest.fixture(scope="module")
def server(smollm2_gguf: Path) -> Iterator[Served]:
    started = Served(smollm2_gguf, "--kv-cache-memory", "0.125", "--max-model-len", "1024", "--log-level", "error")
    yield started
    code, errors = started.stop()
    assert code == 0 and "Traceback" not in errors, errors


def nested(levels: int) -> Any:
    """oneOf in oneOf."""
    schema: Any = {"type": "string"}
    for level in range(levels):
        inner = {"type": "object", "properties": {f"a{level}": schema}, "required": [f"a{level}"]}
        schema = {"oneOf": [inner, {"type": "array", "items": {"type": "string"}}]}
    return schema


def completion(server: Served, **fields: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/completions", json={"prompt": "Once", "seed": 1, **fields}, timeout=120)


def test_compile_bombs_hurt_nobody(server: Served) -> None:
    """Each is refused or kept; streams beside them are what they are alone."""
    alone = completion(server, max_tokens=120, ignore_eos=True).json()["choices"]
    with ThreadPoolExecutor(8) as threads:
        neighbours = [threads.submit(completion, server, max_tokens=120, ignore_eos=True) for _ in range(4)]
        bombs = [*BOMBS, {"guided_json": nested(10)}]
        answers = list(threads.map(lambda bomb: completion(server, max_tokens=8, **bomb), bombs))
        assert all(neighbour.result().json()["choices"] == alone for neighbour in neighbours)
    for bomb, answer in zip(bombs, answers, strict=True):
        assert answer.status_code in (200, 400), answer.text
        if answer.status_code == 400:
            assert answer.json()["error"]["param"] in bomb and answer.json()["error"]["code"], answer.text
    assert {answer.status_code for answer in answers} == {200, 400}
    assert server.is_idle()


DEAD_ENDS = [
    'start: "a" x\nx: x',
    'start: "a" x "b"\nx: "c" x',
    'start: x y\nx: "a"\ny: z\nz: y | y "b"',
    'root ::= "a" x\nx ::= x',
]


@pytest.mark.parametrize("grammar", DEAD_ENDS)
def test_a_form_that_leaves_no_way_on_is_the_request_s_own_fault(server: Served, grammar: str) -> None:
    fields = {"guided_grammar": grammar, "max_tokens": 16}
    answer = completion(server, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "structured_output_dead_end"), answer.text
    assert error["message"].startswith("the form of the answer cannot be kept: ") and len(error["message"]) < 300
    assert "structured_output_dead_end" in completion(server, **fields, stream=True).text
    assert completion(server, guided_grammar='start: "a" x\nx: "b"', max_tokens=16).json()["choices"][0]["text"] == "ab"


def test_a_client_that_leaves_takes_its_form_along(server: Served) -> None:
    body = {"prompt": "x", "stream": True, "max_tokens": 900, "guided_regex": "[ab]{800}"}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=120) as answer:
        next(answer.iter_lines())
    deadline = time.monotonic() + 60
    while not server.is_idle():
        assert time.monotonic() < deadline


def test_a_restarted_core_gives_the_same_answer(server: Served) -> None:
    properties = {"fixed text": {"const": [1, 2]}, "n": {"type": "integer"}}
    form = {"type": "object", "properties": properties, "required": ["fixed text", "n"]}
    before = completion(server, guided_json=form, max_tokens=60).json()["choices"]
    killed = server.core_pid
    os.kill(killed, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while (after := completion(server, guided_json=form, max_tokens=60)).status_code != 200:
        assert time.monotonic() < deadline
    assert after.json()["choices"] == before and server.core_pid != killed


def test_answers_with_a_form_over_http(server: Served) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)
    model = client.models.list().data[0].id
    fields: dict[str, Any] = {"model": model, "messages": [USER], "temperature": 1.0, "seed": 3, "max_tokens": 300}
    whole = client.chat.completions.parse(response_format=Person, **fields).choices[0]
    assert whole.finish_reason == "stop" and isinstance(whole.message.parsed, Person)
    with client.chat.completions.stream(response_format=Person, **fields) as events:
        streamed = events.get_final_completion().choices[0]
    assert (streamed.message.content, streamed.finish_reason) == (whole.message.content, "stop")
    extra = {"structured_outputs": {"choice": ["yes", "no"]}}
    answer = client.completions.create(model=model, prompt="Is it?", extra_body=extra)
    assert answer.choices[0].text in ("yes", "no") and answer.choices[0].finish_reason == "stop"
