"""Answers with a form from the real model over HTTP: parsed by the SDK, the same in a stream and whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import openai
from pydantic import BaseModel
from tests.served import Served


class Person(BaseModel):
    mood: Literal["happy", "sad"]
    age: Literal[1, 22, 333]


USER: Any = {"role": "user", "content": "Describe somebody as JSON."}


def test_answers_with_a_form_over_http(smollm2_gguf: Path) -> None:
    server = Served(smollm2_gguf, "--kv-cache-memory", "0.125", "--max-model-len", "1024", "--log-level", "error")
    try:
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
    finally:
        assert server.stop() == (0, "")
