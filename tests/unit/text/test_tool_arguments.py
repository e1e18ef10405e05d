"""Arguments of past tool calls come to the template in the form that it wants."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.text.chat_template import ChatTemplate
from octavo.text.tool_arguments import with_arguments

LOOP = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
END = "{% endfor %}{% endfor %}"
OBJECT, TEXT = {"b": "Zürich", "a": [1]}, '{"b": "Zürich", "a": [1]}'


def history(arguments: Any) -> list[dict[str, Any]]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [call]}]


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("{{ c.function.arguments | tojson }}", TEXT),
        ("{{ c.function | tojson }}", '{"name": "f", "arguments": ' + TEXT + "}"),
        ("{{ c['function']['arguments'] }}", TEXT),
        ("{{ '```json\\n' + c.function.arguments + '\\n```' }}", f"```json\n{TEXT}\n```"),
        ("{{ c.function.name ~ ' ' ~ c.function.arguments }}", f"f {TEXT}"),
        ("{% for k, v in c.function.arguments.items() %}<{{ k }}={{ v }}>{% endfor %}", "<b=Zürich><a=[1]>"),
        (
            "{% set a = c.function.arguments %}{% if a is string %}{{ a }}{% else %}{{ a | tojson }}{% endif %}",
            TEXT,
        ),
        ("{{ c.function.name }}", "f"),
    ],
)
@pytest.mark.parametrize("arguments", [OBJECT, TEXT])
def test_every_template_shows_json_whatever_the_client_sent(body: str, shown: str, arguments: Any) -> None:
    assert ChatTemplate(LOOP + body + END, {}).render(history(arguments)) == "x" + shown


def test_a_template_that_wants_a_result_behind_every_call_is_tried_with_one() -> None:
    refuses = "{% if messages[-1].role != 'tool' %}{{ raise_exception('no result') }}{% endif %}"
    template = ChatTemplate(refuses + LOOP + "{{ '' + c.function.arguments }}" + END, {})
    assert template.render([*history(OBJECT), {"role": "tool", "content": "2"}]) == f"x{TEXT}2"


def test_arguments_that_are_no_object_stay_as_they_are() -> None:
    for broken in ("{a", "[1]", "3"):
        messages = history(broken)
        assert with_arguments(messages, as_text=False) == messages
    assert with_arguments(history(""), as_text=False) == history({})
    messages = history(TEXT)
    with_arguments(messages, as_text=False)
    assert messages == history(TEXT), "the client's own objects are not touched"
