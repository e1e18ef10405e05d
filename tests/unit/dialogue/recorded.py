"""Answers of each family as their models write them, and what each comes to."""

from __future__ import annotations

from typing import Any

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "zip": {"type": "string"}},
    "required": ["city"],
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now"}},
]
SEOUL = '{"city": "서울 👩‍👩‍👧 \\"{x}\\" \\u00e9", "days": 2}'
NESTED = '{"a": {"b": [1, {"c": "]}</tool_call>"}]}, "d": "\\\\"}'

Case = tuple[str, str, str, str, list[tuple[str, str]]]
"""Tool parser, text, then reasoning, content and calls (name, arguments) that it comes to."""

CASES: list[Case] = [
    ("hermes", f'<tool_call>\n{{"name": "get_weather", "arguments": {SEOUL}}}\n</tool_call>', "", "", [("get_weather", SEOUL)]),
    (
        "hermes",
        f'Let me see. <b>\n<tool_call>\n{{"name": "get_weather", "arguments": {SEOUL}}}\n</tool_call>\n<tool_call>\n'
        f'{{"arguments": {NESTED}, "name": "now"}}\n</tool_call>',
        "",
        "Let me see. <b>",
        [("get_weather", SEOUL), ("now", NESTED)],
    ),
    (
        "hermes",
        '<think>\nI <tool_call> it.\n</think>\n\n<tool_call>{"name": "now", "arguments": {}}</tool_call>',
        "\nI <tool_call> it.\n",
        "",
        [("now", "{}")],
    ),
    ("hermes", "<think>\n\n</think>\n\nHello <tool", "\n\n", "\n\nHello <tool", []),
    ("hermes", '<tool_call>{"name": "now", "arguments": {}}', "", "", [("now", "{}")]),
    ("hermes", '<tool_call>{"name": "now"}</tool_call> ok', "", " ok", [("now", "{}")]),
    ("hermes", '<tool_call>\n[{"name": "now", "arguments": {}}, {"name": "now"}]</tool_call>', "", "", [("now", "{}")] * 2),
    ("hermes", '<tool_call>{"name": "now", "arguments": "{\\"a\\": 1}"}</tool_call>', "", "", [("now", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', "", "", [("now", "{}")]),
    ("hermes", "a <tool_call>{oops}</tool_call> b", "", "a <tool_call>{oops}</tool_call> b", []),
    ("hermes", '<tool_call>{"name": "now", "arguments": {"a": 1', "", '<tool_call>{"name": "now", "arguments": {"a": 1', []),
    (
        "hermes",
        '<tool_call>{"name": "now", "arguments": {a: 1}} x',
        "",
        '<tool_call>{"name": "now", "arguments": {a: 1}} x',
        [],
    ),
    ("hermes", '<tool_call>{"name": "now", "arguments": [1]} x', "", '<tool_call>{"name": "now", "arguments": [1]} x', []),
    (
        "hermes",
        '<tool_call>{"name": <tool_call>{"name": "now"}</tool_call>',
        "",
        '<tool_call>{"name":',
        [("now", "{}")],
    ),
    (
        "qwen3_coder",
        "Sure.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\n서울 <b> 👋\nx\n</parameter>\n<parameter=days>\n2\n"
        "</parameter>\n<parameter=zip>\n007\n</parameter>\n</function>\n</tool_call>",
        "",
        "Sure.",
        [("get_weather", '{"city": "서울 <b> 👋\\nx", "days": 2, "zip": "007"}')],
    ),
    ("qwen3_coder", "<function=now>\n</function>", "", "", [("now", "{}")]),
    ("qwen3_coder", "<tool_call>\n<function=now>\n<parameter=x", "", "<tool_call>\n<function=now>\n<parameter=x", []),
    ("llama3_json", f'{{"name": "get_weather", "parameters": {SEOUL}}}', "", "", [("get_weather", SEOUL)]),
    (
        "llama3_json",
        f'<|python_tag|>{{"type": "function", "name": "get_weather", "parameters": {SEOUL}}}; '
        '{"name": "now", "parameters": {}}',
        "",
        "",
        [("get_weather", SEOUL), ("now", "{}")],
    ),
    ("llama3_json", '{"type": "function", "function": {"name": "now", "parameters": {}}}', "", "", [("now", "{}")]),
    ("llama3_json", '{"name": "Ada", "born": 1815}', "", '{"name": "Ada", "born": 1815}', []),
    ("llama3_json", '{"name": "now", "parameters": {}, "x": 1}', "", '{"name": "now", "parameters": {}, "x": 1}', []),
    ("llama3_json", "  Plain {text}.\n", "", "  Plain {text}.\n", []),
    (
        "mistral",
        f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {SEOUL}, "id": "abcDEF123"}}, '
        '{"name": "now", "arguments": {}}]',
        "",
        "",
        [("get_weather", SEOUL), ("now", "{}")],
    ),
    (
        "mistral",
        f"Well.[TOOL_CALLS]get_weather[ARGS]{SEOUL}[TOOL_CALLS]now[CALL_ID]abcDEF123[ARGS]{{}}",
        "",
        "Well.",
        [("get_weather", SEOUL), ("now", "{}")],
    ),
    ("mistral", f"[TOOL_CALLS]get_weather{SEOUL}", "", "", [("get_weather", SEOUL)]),
    ("mistral", "[TOOL_CALLS] what now [ARGS]", "", "[TOOL_CALLS] what now [ARGS]", []),
    ("gemma", f'```json\n{{"name": "get_weather", "parameters": {SEOUL}}}\n```', "", "", [("get_weather", SEOUL)]),
    (
        "gemma",
        "```tool_code\nget_weather(city='서울 \"👋\"', days=2)\n```",
        "",
        "",
        [("get_weather", '{"city": "서울 \\"👋\\"", "days": 2}')],
    ),
    (
        "gemma",
        '[get_weather(city="(]", zip=None), now()]',
        "",
        "",
        [("get_weather", '{"city": "(]", "zip": null}'), ("now", "{}")],
    ),
    ("gemma", "now(1)", "", "now(1)", []),
    ("gemma", "[now(a=__import__('os'))] x", "", "[now(a=__import__('os'))] x", []),
    ("gemma", "```python\nprint(1)\n```", "", "```python\nprint(1)\n```", []),
    (
        "openai",
        "<|channel|>analysis<|message|>Look it up. 🤔<|end|><|start|>assistant<|channel|>commentary<|message|>One moment."
        "<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        f"{SEOUL}<|call|>",
        "Look it up. 🤔",
        "One moment.",
        [("get_weather", SEOUL)],
    ),
    (
        "openai",
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>",
        "a",
        "",
        [("now", "{}")],
    ),
    (
        "openai",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi <b>.",
        "Hm.",
        "Hi <b>.",
        [],
    ),
    ("openai", "<|channel|>final<|message|>Hi<|return|>", "", "Hi", []),
    ("openai", "<|channel|>commentary to=functions.now<|message|>{oops<|call|>", "", "{oops", []),
    (
        "deepseek_v3",
        "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        f"{SEOUL}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>now<｜tool▁sep｜>{{}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "",
        "Hm.",
        [("get_weather", SEOUL), ("now", "{}")],
    ),
    ("deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f", "", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f", []),
    ("generic", f'{{"name": "get_weather", "arguments": {SEOUL}}}', "", "", [("get_weather", SEOUL)]),
    (
        "generic",
        f'```json\n[{{"name": "get_weather", "arguments": {SEOUL}}}, {{"name": "now"}}]\n```',
        "",
        "",
        [("get_weather", SEOUL), ("now", "{}")],
    ),
    (
        "generic",
        f'I call it:\n<tool_call>\n{{"name": "get_weather", "arguments": {SEOUL}}}\n</tool_call>',
        "",
        "I call it:",
        [("get_weather", SEOUL)],
    ),
    ("generic", '{"tool": "x"}\n', "", '{"tool": "x"}\n', []),
    ("generic", '{"name": "unknown", "arguments": {}}', "", '{"name": "unknown", "arguments": {}}', []),
]
