"""The server around the real engine and a real model: one process group, real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from tests.served import SRC, Served


@pytest.fixture(scope="module")
def served(smollm2_gguf: Path) -> Iterator[Served]:
    started = Served(smollm2_gguf, "--kv-cache-memory", "0.125", "--max-model-len", "1024")
    yield started
    code, errors = started.stop()
    assert code == 0 and "Traceback" not in errors, errors


def test_ready_line_names_url_and_model(served: Served) -> None:
    assert served.ready_line.startswith("octavo is ready: http://127.0.0.1:") and " model m " in served.ready_line


def test_greedy_text_is_the_models_and_streams_alike(served: Served) -> None:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", timeout=120) as client:
        options = {"model": "m", "prompt": "The capital of France is", "max_tokens": 12, "temperature": 0, "logprobs": 2}
        whole = client.completions.create(**options)  # type: ignore[call-overload]
        chunks = list(client.completions.create(**options, stream=True))  # type: ignore[call-overload]
        assert whole.choices[0].text.startswith(" Paris")
        assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
        values = [value for chunk in chunks for value in chunk.choices[0].logprobs.token_logprobs]
        assert values == whole.choices[0].logprobs.token_logprobs


def test_chat_with_several_choices_and_usage(served: Served) -> None:
    body = {"messages": [{"role": "user", "content": "Say hello."}], "n": 2, "max_tokens": 8, "seed": 3, "temperature": 0.8}
    answer = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=120).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["usage"]["completion_tokens"] <= 16 and answer["usage"]["prompt_tokens"] > 10


def test_embeddings_by_the_sdk_in_both_encodings(served: Served) -> None:
    texts = ["The cat sat on the mat.", "A kitten rests on a rug.", "Stock markets fell sharply today."]
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", timeout=120) as client:
        packed = client.embeddings.create(model="m", input=texts)
        plain = client.embeddings.create(model="m", input=texts, encoding_format="float")
        short = client.embeddings.create(model="m", input=texts[0], dimensions=64)
    vectors = [np.array(entry.embedding) for entry in plain.data]
    assert [list(map(np.float32, entry.embedding)) for entry in packed.data] == [list(map(np.float32, v)) for v in vectors]
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.02
    assert len(short.data[0].embedding) == 64 and abs(np.linalg.norm(short.data[0].embedding) - 1) < 1e-5
    body = {"query": texts[0], "documents": texts[1:][::-1]}
    ranked = httpx.post(f"{served.url}/v1/rerank", json=body, timeout=120).json()["results"]
    assert [entry["document"]["text"] for entry in ranked] == texts[1:]
    assert served.metrics()["prompt_tokens_total"] > 0 and served.is_idle()


def test_embeddings_beside_a_chat_leave_its_bytes_alone(served: Served) -> None:
    chat = {"messages": [{"role": "user", "content": "Count to ten."}], "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    texts = [f"text number {index} " * (index % 4 + 1) for index in range(16)]

    def answer(path: str, body: dict[str, object]) -> dict[str, Any]:
        found = httpx.post(f"{served.url}/v1/{path}", json=body, timeout=120)
        assert found.status_code == 200, found.text
        parsed: dict[str, Any] = found.json()
        return parsed

    alone = answer("chat/completions", chat)["choices"]
    with ThreadPoolExecutor(18) as pool:
        beside = pool.submit(answer, "chat/completions", chat)
        one_by_one = [pool.submit(answer, "embeddings", {"input": text}) for text in texts]
        together = pool.submit(answer, "embeddings", {"input": texts})
    assert beside.result()["choices"] == alone
    vectors = [entry["embedding"] for entry in together.result()["data"]]
    assert [entry.result()["data"][0]["embedding"] for entry in one_by_one] == vectors


def test_leaving_clients_free_everything(served: Served) -> None:
    for _ in range(4):
        with httpx.stream(
            "POST",
            f"{served.url}/v1/completions",
            json={"prompt": "Once", "max_tokens": 900, "stream": True, "ignore_eos": True},
            timeout=120,
        ) as answer:
            next(answer.iter_lines())
    assert httpx.post(f"{served.url}/v1/completions", json={"prompt": "x", "max_tokens": 1}, timeout=120).status_code == 200
    metrics = httpx.get(f"{served.url}/metrics").text
    assert 'num_requests_running{model_name="m"} 0.0' in metrics and 'num_requests_waiting{model_name="m"} 0.0' in metrics


def test_taken_port_is_one_line_and_exit_code_2(served: Served) -> None:
    port = served.url.rsplit(":", 1)[1]
    command = [sys.executable, "-m", "octavo", "serve", "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SRC)}, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and f"127.0.0.1:{port}" in done.stderr


def test_sigterm_lets_the_running_answer_finish(smollm2_gguf: Path) -> None:
    server = Served(smollm2_gguf, "--kv-cache-memory", "0.125", "--max-model-len", "512", "--log-level", "warning")
    body = {"prompt": "Once upon a time", "max_tokens": 30, "stream": True, "ignore_eos": True, "temperature": 0}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=120) as answer:
        lines = answer.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]" and '"finish_reason":"length"' in rest[-2]
    assert server.wait() == (0, "")


def test_second_sigterm_ends_at_once_and_leaves_no_process(smollm2_gguf: Path) -> None:
    server = Served(smollm2_gguf, "--kv-cache-memory", "0.125", "--max-model-len", "2048", "--log-level", "error")
    body = {"prompt": "Once upon a time", "max_tokens": 2000, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=120) as answer:
        next(answer.iter_lines())
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGTERM)
        code, errors = server.wait()
    assert (code, errors) == (0, "") and len(children) >= 1, "the core at least is a child"
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
