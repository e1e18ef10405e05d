"""Renderings equal transformers'; bad requests and bad templates end in one clear error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from types import ModuleType
from typing import Any

import pytest

from octavo.errors import InvalidRequestError, LoadError
from octavo.text.chat_encoding import encode_chat
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import Tokenizer

ByName = Callable[[str], Tokenizer]
TEMPLATES = ("chatml", "qwen25", "qwen3", "llama3", "mistral", "gemma", "gemma3_parts", "phi")
HELLO = [{"role": "user", "content": "hello"}]


def _plain(source: str, **special: str) -> ChatTemplate:
    return ChatTemplate(source, special)


@pytest.mark.parametrize("name", TEMPLATES)
def test_renderings_and_ids_equal_transformers(
    name: str,
    golden_chats: dict[str, Any],
    chat_cases: ModuleType,
    small_tokenizer: ByName,
    template_source: Callable[[str], str],
) -> None:
    tokenizer = small_tokenizer(chat_cases.TEMPLATE_TOKENIZERS[name])
    template = ChatTemplate.for_tokenizer(tokenizer, template_source(name))
    cases = {**chat_cases.CASES, **chat_cases.PARTS_CASES}
    assert len(golden_chats[name]) >= len(chat_cases.CASES)
    for title, expected in golden_chats[name].items():
        case = {"add_generation_prompt": False, **cases[title]}
        extra = case.pop("template_kwargs", {})
        if "refused" in expected:
            with pytest.raises(InvalidRequestError):
                template.render(**case, **extra)
            continue
        assert template.render(**case, **extra) == expected["text"], title
        ids = encode_chat(tokenizer, template, **case, template_kwargs=extra)
        bos = [tokenizer.bos_token_id] if tokenizer.adds_bos and expected["ids"][0] != tokenizer.bos_token_id else []
        assert ids == bos + expected["ids"], title


def test_text_parts_are_joined_for_a_template_that_wants_strings(template_source: Callable[[str], str]) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]}]
    joined = [{"role": "user", "content": "a\nb"}]
    template = _plain(template_source("chatml"))
    assert template.render(parts) == template.render(joined)


def test_a_string_becomes_one_part_for_a_template_that_only_iterates() -> None:
    template = _plain("{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}")
    assert template.render(HELLO) == "[hello]"


def test_content_held_in_a_variable_or_macro_is_recognised_as_parts() -> None:
    through_variable = (
        "{% for m in messages %}{% set c = m['content'] %}{% for p in c %}{{ p['text'] }};{% endfor %}{% endfor %}"
    )
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert _plain(through_variable).render(parts) == "a;b;"


def test_an_image_part_is_refused_naming_the_part(template_source: Callable[[str], str]) -> None:
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    with pytest.raises(InvalidRequestError, match=r"messages\.0\.content\.0 is of type 'image_url'"):
        _plain(template_source("chatml")).render(messages)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "non-empty"),
        ("hi", "non-empty"),
        (["hi"], r"messages\.0 must be an object"),
        ([{"content": "x"}], r"messages\.0\.role"),
        ([{"role": "a b", "content": "x"}], r"messages\.0\.role"),
        ([{"role": "<|im_end|>", "content": "x"}], r"messages\.0\.role"),
        ([{"role": "user", "content": 5}], r"messages\.0\.content"),
        ([{"role": "user", "content": [{"type": "text", "text": None}]}], r"messages\.0\.content\.0\.text"),
        ([{"role": "user", "content": "x", "extra": object()}], "only JSON values"),
    ],
)
def test_malformed_messages_are_refused_naming_the_field(
    messages: Any, message: str, template_source: Callable[[str], str]
) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        _plain(template_source("chatml")).render(messages)
    assert caught.value.param == "messages"


def test_deep_nesting_is_refused() -> None:
    nested: Any = "x"
    for _ in range(100):
        nested = [nested]
    with pytest.raises(InvalidRequestError, match="nested"):
        _plain("{{ tools }}").render(HELLO, tools=[{"a": nested}])


def test_the_templates_own_refusal_is_passed_on() -> None:
    with pytest.raises(InvalidRequestError, match="no system please") as caught:
        _plain("{{ raise_exception('no system please') }}").render(HELLO)
    assert caught.value.param == "messages"


def test_a_failing_template_names_the_message() -> None:
    template = _plain("{% for m in messages %}{{ m.content + m.name }}{% endfor %}")
    messages = [{"role": "user", "content": "a", "name": "n"}, {"role": "user", "content": "b"}]
    with pytest.raises(InvalidRequestError, match=r"messages\.1 \(role 'user'\)"):
        template.render(messages)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 100000000000 }}",
        "{{ 9 ** 9999999 }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}" + "x" * 50 + "{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ 1 / 0 }}",
        "{{ undefined_thing.x }}",
    ],
)
def test_a_hostile_template_ends_the_request_only(source: str) -> None:
    with pytest.raises(InvalidRequestError):
        _plain(source).render(HELLO)


def test_a_template_that_does_not_parse_is_a_load_error() -> None:
    with pytest.raises(LoadError, match="not valid Jinja"):
        _plain("{% for %}")


def test_without_a_template_the_way_out_is_named() -> None:
    template = ChatTemplate({}, {})
    assert not template.exists
    with pytest.raises(InvalidRequestError, match="--chat-template"):
        template.render(HELLO)


def test_named_templates_are_chosen_by_the_presence_of_tools() -> None:
    template = ChatTemplate({"default": "D", "tool_use": "T"}, {})
    assert (template.render(HELLO), template.render(HELLO, tools=[])) == ("D", "T")
    with pytest.raises(InvalidRequestError, match="named templates rag"):
        ChatTemplate({"rag": "R"}, {}).render(HELLO)


def test_kwargs_reach_the_template_but_cannot_replace_request_fields() -> None:
    assert _plain("{{ depth }}{{ bos_token }}", bos_token="<s>").render(HELLO, depth=3) == "3<s>"
    with pytest.raises(InvalidRequestError, match="chat_template"):
        _plain("x").render(HELLO, chat_template="{{ 1 }}")


def test_strftime_now_reads_the_clock_it_was_given() -> None:
    template = ChatTemplate("{{ strftime_now('%Y-%m-%d') }}", {}, clock=lambda: datetime(2024, 7, 26, tzinfo=timezone.utc))
    assert template.render(HELLO) == "2024-07-26"


def test_tojson_keeps_html_and_unicode_and_the_sandbox_copies_the_messages() -> None:
    messages = [{"role": "user", "content": "<ü>"}]
    assert _plain("{{ messages[0].content | tojson }}").render(messages) == '"<ü>"'
    assert messages == [{"role": "user", "content": "<ü>"}]


def test_continuing_and_starting_a_message_exclude_each_other(template_source: Callable[[str], str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _plain(template_source("chatml")).render(HELLO, continue_final_message=True, add_generation_prompt=True)
    assert caught.value.param == "continue_final_message"


def test_a_final_message_that_the_template_drops_cannot_be_continued() -> None:
    with pytest.raises(InvalidRequestError, match="does not render the final message"):
        _plain("{% if false %}{{ messages[0].content }}{% endif %}x").render(
            HELLO, continue_final_message=True, add_generation_prompt=False
        )


@pytest.mark.parametrize("source", ["{% if", "{{ x|nonsense }}", "(" * 9 + "{{", "{{ " + "x" * (1 << 20) + " }}"])
def test_a_broken_template_of_a_model_is_refused_when_it_is_used(source: str) -> None:
    template = ChatTemplate({"default": "{{ messages[0].content }}", "tool_use": source}, {}, lenient=True)
    messages = [{"role": "user", "content": "hi"}]
    assert template.render(messages) == "hi"
    with pytest.raises(InvalidRequestError, match="not valid Jinja"):
        template.render(messages, tools=[{"type": "function"}])
    with pytest.raises(LoadError, match="not valid Jinja"):
        ChatTemplate({"default": source}, {})
