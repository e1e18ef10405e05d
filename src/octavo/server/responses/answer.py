"""The response object: what /v1/responses answers, whole or as the last event of a stream."""

from __future__ import annotations

import time
from typing import Any

from octavo.server.responses.body import ResponsesBody
from octavo.server.responses.text_format import format_json
from octavo.server.responses.tools import tool_choice_json, tools_json
from octavo.server.service.chat_turn import ChatRequest, ChatTurn
from octavo.server.service.service import Service


class ResponseObject:
    """Writes the object of one response at each of its stations."""

    def __init__(self, body: ResponsesBody, asked: ChatRequest, turn: ChatTurn, service: Service) -> None:
        self._turn = turn
        self._head = _head(body, asked, turn, service)

    @property
    def id(self) -> str:
        return self._turn.generation.request_id

    def under_way(self) -> dict[str, Any]:
        """Nothing has been said yet."""
        return {**self._head, "status": "in_progress", "output": []}

    def ended(self, output: list[dict[str, Any]], finish_reason: str | None, reasoning_tokens: int) -> dict[str, Any]:
        """The whole answer: completed, or incomplete where a limit cut it."""
        usage = self._turn.usage
        is_cut = finish_reason == "length"
        return {
            **self._head,
            "status": "incomplete" if is_cut else "completed",
            "completed_at": None if is_cut else int(time.time()),
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": output,
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            },
        }

    def failed(self, output: list[dict[str, Any]], message: str) -> dict[str, Any]:
        """An error ended it; output is what was said before. Of OpenAI's codes for this place only one fits."""
        return {**self._head, "status": "failed", "output": output, "error": {"code": "server_error", "message": message}}


def _head(body: ResponsesBody, asked: ChatRequest, turn: ChatTurn, service: Service) -> dict[str, Any]:
    """What is known before the first token; fields without a value yet are null."""
    params = turn.generation.params
    return {
        "id": turn.generation.request_id,
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "model": service.model_name,
        "parallel_tool_calls": asked.parallel_tool_calls,
        "previous_response_id": None,
        "reasoning": {"effort": None if body.reasoning is None else body.reasoning.effort, "summary": None},
        "service_tier": "default",
        "store": False,
        "system_fingerprint": service.system_fingerprint,
        "temperature": params.temperature,
        "text": {"format": format_json(None if body.text is None else body.text.format), "verbosity": "medium"},
        "tool_choice": tool_choice_json(asked.tool_choice),
        "tools": tools_json(asked.tools),
        "top_logprobs": body.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
    }
