"""Ollama's API over the real engine and the embedded model: the same words as /v1/chat/completions for the same settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema  # type: ignore[import-untyped]
import ollama
import pytest
from tests.served import Served

MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
BOTH = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "seed": 11, "stop": ["\n\n"]}
OPTIONS = {**BOTH, "num_predict": 24, "repeat_penalty": 1.1}
SAMPLING = {**BOTH, "repetition_penalty": 1.1}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "large": {"type": "boolean"}},
    "required": ["city", "large"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def served(smollm2_gguf: Path) -> Iterator[Served]:
    started = Served(smollm2_gguf, "--kv-cache-memory", "0.125", "--max-model-len", "1024")
    yield started
    code, errors = started.stop()
    assert code == 0 and "Traceback" not in errors, errors


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[ollama.Client]:
    with ollama.Client(served.url, timeout=120) as made:
        yield made


def openai_text(served: Served, **body: Any) -> str:
    answer = httpx.post(f"{served.url}/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 24, **body}, timeout=120)
    return str(answer.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize(("options", "body"), [(OPTIONS, SAMPLING), ({"num_predict": 24, "seed": 1}, {"seed": 1})])
def test_the_words_are_those_of_chat_completions(
    options: dict[str, Any], body: dict[str, Any], served: Served, client: ollama.Client
) -> None:
    expected = openai_text(served, **body)
    assert client.chat("m", MESSAGES, options=options).message.content == expected != ""
    parts = list(client.chat("m:latest", MESSAGES, options=options, stream=True))
    assert "".join(part.message.content or "" for part in parts) == expected
    assert client.generate("m", MESSAGES[0]["content"], options=options).response == expected
    streamed = client.generate("m", MESSAGES[0]["content"], options=options, stream=True)
    assert "".join(part.response or "" for part in streamed) == expected


def test_raw_continues_a_text_and_times_are_measured(served: Served, client: ollama.Client) -> None:
    body = {"prompt": "The capital of France is", "max_tokens": 12, "temperature": 0}
    expected = httpx.post(f"{served.url}/v1/completions", json=body, timeout=120).json()
    answer = client.generate("m", "The capital of France is", raw=True, options={"num_predict": 12, "temperature": 0})
    assert answer.response == expected["choices"][0]["text"]
    usage = expected["usage"]
    assert (answer.prompt_eval_count, answer.eval_count) == (usage["prompt_tokens"], usage["completion_tokens"])
    times = [answer.load_duration or 0, answer.prompt_eval_duration or 0, answer.eval_duration or 0]
    assert min(times) > 0 and sum(times) <= (answer.total_duration or 0) and answer.done_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_has_the_form_that_is_asked_for(stream: bool, client: ollama.Client) -> None:
    for form, most in ((SCHEMA, 80), ("json", 8)):
        options = {"temperature": 1, "seed": 5, "num_predict": most}
        said = client.chat("m", MESSAGES, format=form, options=options, stream=stream)  # type: ignore[call-overload]
        text = "".join(part.message.content for part in said) if stream else said.message.content
        if form == "json":
            assert text.lstrip().startswith("{")
        else:
            jsonschema.validate(json.loads(text), SCHEMA)


def test_the_model_is_described_as_it_is(smollm2_gguf: Path, client: ollama.Client) -> None:
    (listed,) = client.list().models
    assert listed.size == smollm2_gguf.stat().st_size and listed.details is not None
    details = listed.details
    assert (details.family, details.parameter_size, details.quantization_level) == ("llama", "134.5M", "Q4_1")
    shown = client.show("m:latest")
    assert shown.parameters is not None and "temperature 0.2" in shown.parameters
    assert shown.modelinfo is not None and shown.modelinfo["llama.context_length"] == 1024
    assert client.chat("m").done_reason == "load"
