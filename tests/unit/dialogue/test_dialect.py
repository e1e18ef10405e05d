"""The text of each family is taken apart the same wherever it is cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dialogue.recorded import CASES, SEOUL, TOOLS, Case

from octavo.dialogue.calls import MessageDelta, ToolCallDelta, join_calls
from octavo.dialogue.dialect import REASONING, TOOL_FORMATS, choose_dialect
from octavo.dialogue.reasoning import THINK, THINK_ALWAYS
from octavo.dialogue.stream import MessageStream
from octavo.dialogue.tools import Tools
from octavo.errors import ConfigError

TEMPLATES = Path(__file__).parents[2] / "golden" / "text" / "templates"
Result = tuple[str, str, list[tuple[str, str]]]


def stream_of(parser: str, **options: Any) -> MessageStream:
    reasoning = "openai_gptoss" if parser == "openai" else "qwen3"
    dialect = choose_dialect({}, knows_tools=True, tool_parser=parser, reasoning_parser=reasoning)
    stream = dialect.stream(Tools(TOOLS), **options)
    assert stream is not None
    return stream


def taken_apart(stream: MessageStream, pieces: Iterable[str]) -> Result:
    deltas: list[MessageDelta] = [stream.push(piece) for piece in pieces]
    deltas.append(stream.finish())
    calls: list[ToolCallDelta] = [call for delta in deltas for call in delta.tool_calls]
    assert [call.index for call in calls if call.name is not None] == list(range(len(join_calls(calls))))
    joined = [(call.name, call.arguments) for call in join_calls(calls)]
    return "".join(delta.reasoning for delta in deltas), "".join(delta.content for delta in deltas), joined


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1][:24]!r}")
def test_whole_text(case: Case) -> None:
    parser, text, *expected = case
    stream = stream_of(parser)
    assert taken_apart(stream, [text]) == tuple(expected)
    assert stream.made_calls == bool(expected[2])
    for _, arguments in expected[2]:
        json.loads(arguments)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1][:24]!r}")
def test_text_cut_anywhere(case: Case) -> None:
    parser, text, *expected = case
    for at in range(len(text) + 1):
        assert taken_apart(stream_of(parser), [text[:at], text[at:]]) == tuple(expected), at
    for size in (1, 2, 3, 7):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert taken_apart(stream_of(parser), pieces) == tuple(expected), size


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1][:24]!r}")
def test_every_beginning_of_a_text_loses_nothing_and_completes_no_broken_call(case: Case) -> None:
    parser, text, *_ = case
    for at in range(len(text)):
        whole, cut = stream_of(parser), stream_of(parser)
        result = taken_apart(whole, [text[:at]])
        assert taken_apart(cut, text[:at]) == result, at
        for _, arguments in result[2]:
            assert isinstance(json.loads(arguments), dict)


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        ("hermes", f'<tool_call>\n{{"name": "get_weather", "arguments": {SEOUL}}}\n</tool_call>'),
        ("generic", f'<tool_call>\n{{"name": "get_weather", "arguments": {SEOUL}}}\n</tool_call>'),
        ("mistral", f'<tool_call>\n{{"name": "get_weather", "arguments": {SEOUL}}}\n</tool_call>'),
        ("openai", f'<tool_call>\n{{"name": "get_weather", "arguments": {SEOUL}}}\n</tool_call>'),
        ("llama3_json", f'{{"name": "get_weather", "parameters": {SEOUL}}}'),
        ("gemma", f'{{"name": "get_weather", "parameters": {SEOUL}}}'),
    ],
)
def test_calls_that_a_grammar_makes_are_streamed_as_they_come(parser: str, text: str) -> None:
    stream = stream_of(parser, is_held_to_form=True)
    seen = [call.arguments for character in text for call in stream.push(character).tool_calls]
    assert "".join(seen) == SEOUL and len(seen) == len(SEOUL) - SEOUL.count("\\")
    assert stream.made_calls
    for at in range(text.index(SEOUL) + 1, len(text) - len("}\n</tool_call>")):
        cut = stream_of(parser, is_held_to_form=True)
        _, content, calls = taken_apart(cut, [text[:at]])
        assert content == "" and not cut.made_calls and SEOUL.startswith(calls[0][1])


def test_only_what_may_be_a_marker_is_held_back() -> None:
    stream = stream_of("hermes")
    assert [stream.push(piece).content for piece in ("a", " ", "<", "b", "<tool_cal", "k")] == [
        "a",
        "",
        "",
        " <b",
        "",
        "<tool_calk",
    ]
    bare = stream_of("llama3_json")
    assert [bare.push(piece).content for piece in ("{", '"x', '"', ": 1}", "z")] == ["", "", '{"x"', ": 1}", "z"]


def test_one_call_at_most_where_parallel_calls_are_off() -> None:
    text = '<tool_call>{"name": "now"}</tool_call><tool_call>{"name": "now", "arguments": {"a": 1}}</tool_call>'
    stream = stream_of("hermes", max_calls=1)
    assert taken_apart(stream, text) == ("", "", [("now", "{}")]) and stream.made_calls


def test_answer_that_begins_inside_reasoning() -> None:
    for text, reasoning, content in (("Hm.</think>Hi", "Hm.", "Hi"), ("<think>Hm.</think>Hi", "Hm.", "Hi"), ("Hm.", "Hm.", "")):
        for pieces in ([text], list(text)):
            assert taken_apart(stream_of("hermes", starts_inside=True), pieces) == (reasoning, content, [])


def test_the_prompt_says_whether_an_answer_begins_inside_reasoning() -> None:
    ends = ("assistant\n", "assistant\n<think>\n", "<think>\n\n</think>\n\n")
    assert [THINK.starts_inside(end) for end in ends] == [False, True, False]
    assert [THINK_ALWAYS.starts_inside(end) for end in ends] == [True, True, False]


def test_markers_that_are_control_tokens_never_reach_the_client() -> None:
    hidden = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
    for text, content in (("a [ARGS] b", "a  b"), ("x[TOOL_CALLS]?[ARGS]", "x?"), ("[TOOL_CALLS]", "")):
        for pieces in ([text], list(text)):
            assert taken_apart(stream_of("mistral", hidden=hidden), pieces) == ("", content, [])


def test_ids_have_the_shape_that_the_template_wants() -> None:
    for parser, text, shape in (
        ("hermes", '<tool_call>{"name": "now"}</tool_call>', r"call_[a-zA-Z0-9]{24}"),
        ("mistral", "[TOOL_CALLS]now[ARGS]{}", r"[a-zA-Z0-9]{9}"),
    ):
        deltas = [stream.push(text) for stream in (stream_of(parser), stream_of(parser))]
        ids = [delta.tool_calls[0].id or "" for delta in deltas]
        assert all(re.fullmatch(shape, call_id) for call_id in ids) and ids[0] != ids[1]


@pytest.mark.parametrize(
    ("template", "tool_format", "thinks"),
    [
        ("chatml", "generic", False),
        ("gemma", "gemma", False),
        ("gemma3_parts", "gemma", False),
        ("llama3", "llama3_json", False),
        ("qwen25", "hermes", False),
        ("qwen3", "generic", True),
    ],
)
def test_chat_template_shows_the_dialect(template: str, tool_format: str, thinks: bool) -> None:
    dialect = choose_dialect({"default": (TEMPLATES / f"{template}.jinja").read_text()}, knows_tools=True)
    assert (dialect.tool_format.name, dialect.reasoning is not None) == (tool_format, thinks)


def test_parsers_go_by_the_names_of_vllm() -> None:
    for name in (*TOOL_FORMATS, "qwen3_xml", "deepseek_v31", "llama4_json", "pythonic"):
        assert choose_dialect({}, knows_tools=True, tool_parser=name).tool_format.name in TOOL_FORMATS
    with pytest.raises(ConfigError, match="did you mean hermes"):
        choose_dialect({}, knows_tools=True, tool_parser="hermess")
    with pytest.raises(ConfigError, match="reasoning-parser"):
        choose_dialect({}, knows_tools=True, reasoning_parser="x")


@pytest.mark.parametrize("text", ["<tool_call>" * 900, '<tool_call>{"' * 900, "[" * 9000, '{"name":' * 1200, " " * 9000 + "."])
def test_hostile_text_is_taken_apart_in_time(text: str) -> None:
    for parser in TOOL_FORMATS:
        pieces = [text[at : at + 5] for at in range(0, len(text), 5)]
        reasoning, content, calls = taken_apart(stream_of(parser), pieces)
        assert (reasoning, content, calls) == ("", text, [])


def test_the_page_lists_every_parser() -> None:
    page = (Path(__file__).parents[3] / "docs" / "tools.md").read_text()
    about = [(name, entry.about) for name, entry in TOOL_FORMATS.items()]
    for name, text in [*about, *((name, text) for name, (_, text) in REASONING.items())]:
        assert f"| `{name}` | {text.replace('<', '&lt;').replace('|', chr(92) + '|')} |" in page
