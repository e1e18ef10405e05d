"""litellm: an answer goes back in, twice; its errors are the ones it knows."""

from __future__ import annotations

from typing import Any

import litellm
import pytest
from litellm.exceptions import ContextWindowExceededError
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
