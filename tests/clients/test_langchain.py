"""LangChain: an answer goes back in, twice, whole and streamed; several answers of one prompt."""

from __future__ import annotations

from typing import Any

import langchain_openai
import pytest
from tests.served import Served


def model(served: Served, **settings: Any) -> Any:
    return langchain_openai.ChatOpenAI(model="m", base_url=f"{served.url}/v1", api_key="none", max_tokens=8, **settings)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_goes_back_in_twice(served: Served, stream: bool) -> None:
    chat = model(served, temperature=0)
    messages: list[Any] = [("user", "Name a colour.")]
    for _ in range(2):
        if stream:
            answer, *rest = chat.stream(messages)
            for chunk in rest:
                answer += chunk
        else:
            answer = chat.invoke(messages)
        assert answer.content
        messages += [answer, ("user", "And another.")]
    assert chat.invoke(messages).content


def test_several_answers_and_a_batch(served: Served) -> None:
    result = model(served, n=2, temperature=0).generate([[("user", "Hello")], [("user", "Hi")]])
    assert [len(generations) for generations in result.generations] == [2, 2]
