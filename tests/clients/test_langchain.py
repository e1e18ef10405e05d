"""LangChain: an answer goes back in, twice, whole and streamed; several answers of one prompt; tools; structured output."""

from __future__ import annotations

from typing import Any

import langchain_openai
import pytest
from langchain_core.messages import HumanMessage
from tests.clients.person import ASK, FORECAST, WEATHER, Person, check_arguments
from tests.served import Served


def model(served: Served, **settings: Any) -> Any:
    return langchain_openai.ChatOpenAI(model="m", base_url=f"{served.url}/v1", api_key="none", **{"max_tokens": 8, **settings})


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
    result = model(served, n=2, temperature=0).generate([[HumanMessage("Hello")], [HumanMessage("Hi")]])
    assert [len(generations) for generations in result.generations] == [2, 2]


@pytest.mark.parametrize("choice", ["required", "get_forecast"])
def test_a_tool_is_called_and_its_result_goes_back(served: Served, choice: str) -> None:
    chat = model(served, temperature=0, max_tokens=100)
    bound = chat.bind_tools([FORECAST], tool_choice=choice, parallel_tool_calls=False)
    answer = bound.invoke([("user", WEATHER)])
    [call] = answer.tool_calls
    check_arguments(call["args"])
    streamed, *rest = bound.stream([("user", WEATHER)])
    for chunk in rest:
        streamed += chunk
    assert [found["args"] for found in streamed.tool_calls] == [call["args"]]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "맑음 ☀️"}
    assert chat.bind_tools([FORECAST]).invoke([("user", WEATHER), answer, result]).content


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
@pytest.mark.parametrize("stream", [False, True])
def test_structured_output(served: Served, method: str, stream: bool) -> None:
    asks = model(served, temperature=1, seed=3, max_tokens=100).with_structured_output(Person, method=method)
    person = list(asks.stream(ASK))[-1] if stream else asks.invoke(ASK)
    assert isinstance(person, Person)


def test_embeddings(served: Served) -> None:
    client = langchain_openai.OpenAIEmbeddings(
        model="m", base_url=f"{served.url}/v1", api_key="none", check_embedding_ctx_length=False
    )
    one, two = client.embed_documents(["a cat", "a dog"])
    assert len(one) == len(two) == 576 and client.embed_query("a cat") == one
