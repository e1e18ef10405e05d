"""Guesses over HTTP: what a request may say, what the answer and the metrics tell, and that no byte is another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.served import Served

SENTENCE = "The quick brown fox jumps over the lazy dog near the river bank, and then it runs home to sleep. "


@pytest.fixture(scope="module")
def served(smollm2_gguf: Path) -> Iterator[Served]:
    config = '{"method": "ngram", "num_speculative_tokens": 6}'
    started = Served(smollm2_gguf, "--kv-cache-memory", "0.125", "--max-model-len", "1024", "--speculative-config", config)
    yield started
    code, errors = started.stop()
    assert code == 0 and "Traceback" not in errors, errors


def post(served: Served, path: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{served.url}/v1/{path}", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    parsed: dict[str, Any] = answer.json()
    return parsed


def complete(served: Served, **more: Any) -> dict[str, Any]:
    body = {"prompt": SENTENCE * 4, "max_tokens": 48, "temperature": 0, "ignore_eos": True, "logprobs": 1}
    return post(served, "completions", **{**body, **more})


def test_a_repeating_answer_has_the_same_bytes_with_and_without(served: Served) -> None:
    before = served.metrics()
    without = complete(served, num_speculative_tokens=0)
    assert served.metrics()["spec_decode_num_drafts_total"] == before["spec_decode_num_drafts_total"]
    with_guesses = complete(served)
    assert with_guesses["choices"] == without["choices"]
    assert with_guesses["usage"]["completion_tokens"] == without["usage"]["completion_tokens"] == 48
    after = served.metrics()
    gained = {name: after[name] - before.get(name, 0.0) for name in after if name.startswith("spec_decode")}
    drafted, accepted = gained["spec_decode_num_draft_tokens_total"], gained["spec_decode_num_accepted_tokens_total"]
    assert 10 < accepted <= drafted and gained["spec_decode_num_drafts_total"] > 2
    assert gained["spec_decode_num_accepted_tokens_per_pos_total"] == accepted
    assert after["generation_tokens_total"] - before["generation_tokens_total"] == 96
    assert served.is_idle()


@pytest.mark.parametrize("stream", [False, True])
def test_a_prediction_is_told_in_the_usage(served: Served, stream: bool) -> None:
    chat: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Count from one to twenty in words."}],
        "max_tokens": 40,
        "temperature": 0,
    }
    plain = post(served, "chat/completions", **chat, num_speculative_tokens=0)
    text = plain["choices"][0]["message"]["content"]
    assert "completion_tokens_details" not in plain["usage"]
    prediction = {"type": "content", "content": [{"type": "text", "text": text[:20]}, {"type": "text", "text": text[20:]}]}
    if not stream:
        answer = post(served, "chat/completions", **chat, prediction=prediction)
        assert answer["choices"] == plain["choices"]
        details = answer["usage"]["completion_tokens_details"]
        assert details["accepted_prediction_tokens"] > 5 and details["rejected_prediction_tokens"] >= 0
        return
    body = {**chat, "prediction": prediction, "stream": True, "stream_options": {"include_usage": True}}
    raw = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=120).text
    assert '"accepted_prediction_tokens":' in raw.splitlines()[-4]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("completions", {"num_speculative_tokens": 33}, "num_speculative_tokens"),
        ("completions", {"num_speculative_tokens": -1}, "num_speculative_tokens"),
        ("completions", {"num_speculative_tokens": "many"}, "num_speculative_tokens"),
        ("completions", {"prediction": {"type": "content", "content": "x"}}, "prediction"),
        ("chat/completions", {"prediction": "x"}, "prediction"),
        ("chat/completions", {"prediction": {"type": "text", "content": "x"}}, "prediction"),
        ("chat/completions", {"prediction": {"type": "content", "content": [{"type": "image", "text": ""}]}}, "prediction"),
        ("chat/completions", {"prediction": {"type": "content", "content": "word " * 20_000}}, "prediction"),
    ],
)
def test_what_is_wrong_is_named(served: Served, path: str, fields: dict[str, Any], param: str) -> None:
    prompt: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"prompt": "x"}
    answer = httpx.post(f"{served.url}/v1/{path}", json={**prompt, **fields}, timeout=120)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"].startswith(param)


@pytest.mark.parametrize("prediction", [None, {"type": "content", "content": ""}, {"type": "content", "content": []}])
def test_an_empty_prediction_asks_for_nothing(served: Served, prediction: Any) -> None:
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    assert "completion_tokens_details" not in post(served, "chat/completions", **chat, prediction=prediction)["usage"]
