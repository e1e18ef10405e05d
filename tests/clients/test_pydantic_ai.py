"""pydantic-ai: agents whose answers are models, by tool and by response_format; a tool call and its result."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, NativeOutput, ToolDefinition, ToolOutput
from pydantic_ai.direct import model_request_sync
from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from tests.clients.person import ASK, FORECAST, WEATHER, Person, check_arguments

SETTINGS: Any = {"temperature": 0, "max_tokens": 100, "parallel_tool_calls": False}
MODELS = [OpenAIChatModel, OpenAIResponsesModel]


def model(base_url: str, kind: Any) -> Any:
    return kind("m", provider=OpenAIProvider(base_url=base_url, api_key="none"))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("output", [ToolOutput, NativeOutput])
def test_an_agent_answers_with_a_model(base_url: str, kind: Any, output: Any) -> None:
    agent: Any = Agent(model(base_url, kind), output_type=output(Person), model_settings=SETTINGS)

    async def streamed() -> Any:
        async with agent.run_stream(ASK) as run:
            return await run.get_output()

    async def both() -> list[Any]:
        return [(await agent.run(ASK)).output, await streamed()]

    whole, parts = asyncio.run(both())
    assert isinstance(whole, Person) and whole == parts


@pytest.mark.parametrize("kind", MODELS)
def test_a_tool_is_called_and_its_result_goes_back(base_url: str, kind: Any) -> None:
    function = FORECAST["function"]
    tool = ToolDefinition(
        name=function["name"], parameters_json_schema=function["parameters"], description=function["description"]
    )
    wanted = ModelRequestParameters(function_tools=[tool], allow_text_output=False)
    history: list[Any] = [ModelRequest(parts=[UserPromptPart(WEATHER)])]
    answer = model_request_sync(model(base_url, kind), history, model_settings=SETTINGS, model_request_parameters=wanted)
    [call] = answer.tool_calls
    check_arguments(call.args_as_dict())
    history += [answer, ModelRequest(parts=[ToolReturnPart(call.tool_name, "맑음 ☀️", call.tool_call_id)])]
    free = ModelRequestParameters(function_tools=[tool])
    assert model_request_sync(model(base_url, kind), history, model_settings=SETTINGS, model_request_parameters=free).parts
