"""Conversations that every template is rendered with; a template may refuse some, which is recorded too."""

from __future__ import annotations

from typing import Any

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'Current weather in <city> & "region" – größer, 天气',
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["c", "f"]}},
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "noop", "description": "", "parameters": {"type": "object", "properties": {}}}},
]
_SYSTEM = {"role": "system", "content": "You are terse.\n"}
_USER = {"role": "user", "content": "  Hello, <b>wörld</b>! 你好 👋🏽\n\n- a < b && c > d [x](y)  "}
_ASSISTANT = {"role": "assistant", "content": "Hi! How can I help?  "}
_FOLLOW_UP = {"role": "user", "content": "def f(x):\n    return {'a': [1, 2]}"}
_ARGUMENTS = {"city": "Zürich <1>", "unit": "c"}
_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call12345",
            "type": "function",
            "function": {"name": "get_weather", "arguments": _ARGUMENTS},
        }
    ],
}
_RESULT = {"role": "tool", "content": '{"temp": 21.5}', "tool_call_id": "call12345"}
_PARTS = {"role": "user", "content": [{"type": "text", "text": "first part"}, {"type": "text", "text": " second part "}]}

CASES: dict[str, dict[str, Any]] = {
    "one user": {"messages": [_USER], "add_generation_prompt": True},
    "no generation prompt": {"messages": [_USER, _ASSISTANT], "add_generation_prompt": False},
    "system": {"messages": [_SYSTEM, _USER], "add_generation_prompt": True},
    "multi turn": {"messages": [_SYSTEM, _USER, _ASSISTANT, _FOLLOW_UP], "add_generation_prompt": True},
    "multi turn without system": {"messages": [_USER, _ASSISTANT, _FOLLOW_UP], "add_generation_prompt": True},
    "continue": {"messages": [_USER, {"role": "assistant", "content": "The answer is"}], "continue_final_message": True},
    "continue with space": {
        "messages": [_USER, {"role": "assistant", "content": "The answer is "}],
        "continue_final_message": True,
    },
    "tools": {"messages": [_USER], "tools": TOOLS, "add_generation_prompt": True},
    "tools and system": {"messages": [_SYSTEM, _USER], "tools": TOOLS, "add_generation_prompt": True},
    "tool call": {"messages": [_USER, _CALL, _RESULT], "tools": TOOLS, "add_generation_prompt": True},
    "thinking": {
        "messages": [_USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}, _FOLLOW_UP],
        "add_generation_prompt": True,
    },
    "thinking kept": {
        "messages": [_USER, {"role": "assistant", "content": "Yes.", "reasoning_content": "hm"}],
        "add_generation_prompt": False,
    },
    "thinking off": {"messages": [_USER], "add_generation_prompt": True, "template_kwargs": {"enable_thinking": False}},
    "documents": {
        "messages": [_USER],
        "documents": [{"title": "T", "text": "body"}],
        "add_generation_prompt": True,
    },
    "user twice": {"messages": [_USER, _FOLLOW_UP], "add_generation_prompt": True},
    "empty content": {"messages": [{"role": "user", "content": ""}], "add_generation_prompt": True},
}
PARTS_CASES: dict[str, dict[str, Any]] = {
    "parts": {"messages": [_PARTS], "add_generation_prompt": True},
    "parts and system": {"messages": [_SYSTEM, _PARTS, _ASSISTANT, _USER], "add_generation_prompt": True},
    "continue parts": {
        "messages": [_USER, {"role": "assistant", "content": [{"type": "text", "text": "The answer is"}]}],
        "continue_final_message": True,
    },
}
TEMPLATE_TOKENIZERS = {
    "chatml": "qwen2_like",
    "qwen25": "qwen2_like",
    "qwen3": "qwen2_like",
    "llama3": "llama3_like",
    "mistral": "llama_metaspace",
    "gemma": "gemma_like",
    "gemma3_parts": "gemma_like",
    "phi": "llama_legacy",
}
"""Template -> tokenizer folder whose special tokens it writes."""
