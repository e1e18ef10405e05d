"""litellm: an answer goes back in, twice; tools; structured output; its errors are the ones it knows."""

from __future__ import annotations

import json
from typing import Any

import litellm
import pytest
from litellm.exceptions import ContextWindowExceededError
from tests.clients.person import ASK, FORECAST, WEATHER, Person, check_arguments
from tests.served import Served


def options(served: Served) -> dict[str, Any]:
    return {"model": "openai/m", "api_base": f"{served.url}/v1", "api_key": "none", "temperature": 0, "max_tokens": 8}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("as_dict", [False, True])
def test_an_answer_goes_back_in_twice(served: Served, stream: bool, as_dict: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "Name a colour."}]
    for _ in range(2):
        answer = litellm.completion(messages=messages, stream=stream, **options(served))
        if stream:
            answer = litellm.stream_chunk_builder(list(answer), messages=messages)
        message = answer.choices[0].message
        assert message.content
        messages += [message.model_dump() if as_dict else message, {"role": "user", "content": "And another."}]
    assert litellm.completion(messages=messages, **options(served)).choices[0].message.content


def test_a_prompt_that_does_not_fit_is_the_error_that_it_falls_back_on(served: Served) -> None:
    messages = [{"role": "user", "content": "word " * 2000}]
    with pytest.raises(ContextWindowExceededError):
        litellm.completion(messages=messages, **options(served))


def test_a_tool_is_called_and_its_result_goes_back(served: Served) -> None:
    asked = {**options(served), "max_tokens": 100, "tools": [FORECAST], "tool_choice": "required"}
    messages: list[Any] = [{"role": "user", "content": WEATHER}]
    whole = litellm.completion(messages=messages, parallel_tool_calls=False, **asked)
    parts = list(litellm.completion(messages=messages, parallel_tool_calls=False, stream=True, **asked))
    streamed: Any = litellm.stream_chunk_builder(parts, messages=messages)
    assert whole.choices[0].finish_reason == "tool_calls"
    [call] = whole.choices[0].message.tool_calls
    [same] = streamed.choices[0].message.tool_calls
    assert call.function.arguments == same.function.arguments
    check_arguments(json.loads(call.function.arguments))
    messages += [whole.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "맑음 ☀️"}]
    assert litellm.completion(messages=messages, **options(served)).choices[0].message.content


def test_structured_output(served: Served) -> None:
    messages = [{"role": "user", "content": ASK}]
    answer = litellm.completion(messages=messages, response_format=Person, **{**options(served), "max_tokens": 100})
    Person.model_validate_json(answer.choices[0].message.content)


def test_embeddings(served: Served) -> None:
    place = {"model": "openai/m", "api_base": f"{served.url}/v1", "api_key": "none"}
    answer = litellm.embedding(input=["a cat", "a dog"], **place)
    assert [len(item["embedding"]) for item in answer.data] == [576, 576]
