"""LlamaIndex: chats and completions, whole and streamed; tools; models by structured_predict."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from tests.clients.person import ASK, WEATHER, Forecast, Person, check_arguments, get_forecast


def model(base_url: str, **settings: Any) -> Any:
    fixed = {"model": "m", "api_base": base_url, "api_key": "none", "context_window": 1024, "max_retries": 0}
    options = {"is_chat_model": True, "is_function_calling_model": True, "temperature": 0, "max_tokens": 100}
    return OpenAILike(**{**fixed, **options, **settings})


@pytest.mark.parametrize("is_chat_model", [True, False])
def test_streams_equal_whole_answers(base_url: str, is_chat_model: bool) -> None:
    llm = model(base_url, is_chat_model=is_chat_model, max_tokens=8)
    messages = [ChatMessage(role="user", content="Name a colour.")]
    whole = llm.chat(messages).message
    assert whole.content and list(llm.stream_chat(messages))[-1].message.content == whole.content
    assert list(llm.stream_complete("The sky is"))[-1].text == llm.complete("The sky is").text
    assert llm.chat([*messages, whole, ChatMessage(role="user", content="And another.")]).message.content


def test_a_tool_is_called_and_its_result_goes_back(base_url: str) -> None:
    llm = model(base_url)
    tool = FunctionTool.from_defaults(get_forecast, fn_schema=Forecast)
    asked = ChatMessage(role="user", content=WEATHER)
    answer = llm.chat_with_tools([tool], user_msg=asked, tool_required=True)
    [call] = llm.get_tool_calls_from_response(answer)
    check_arguments(call.tool_kwargs)
    streamed = list(llm.stream_chat_with_tools([tool], user_msg=asked, tool_required=True))[-1]
    assert [same.tool_kwargs for same in llm.get_tool_calls_from_response(streamed)] == [call.tool_kwargs]
    result = ChatMessage(role="tool", content=str(tool(**call.tool_kwargs)), additional_kwargs={"tool_call_id": call.tool_id})
    assert llm.chat([asked, answer.message, result]).message.content


@pytest.mark.parametrize("by_format", [False, True])
def test_structured_output(base_url: str, by_format: bool) -> None:
    llm = model(base_url, should_use_structured_outputs=by_format)
    assert isinstance(llm.structured_predict(Person, PromptTemplate(ASK)), Person)
