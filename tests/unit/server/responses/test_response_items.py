"""OutputItems: deltas as items and events; what the events tell adds up to the items."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from tests.fakes_server import byte_tokenizer
from tests.scripted_turn import THINK_TALK_CALL, called, said, thought

from octavo.engine.frontend.logprobs import PositionLogprobs
from octavo.server.responses.items import OutputItems
from octavo.server.service.chat_turn import ChoiceDelta

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def run(deltas: list[ChoiceDelta], status: str = "completed", num_logprobs: int | None = None) -> tuple[OutputItems, list[Any]]:
    """The items, and their events as the SDK reads them."""
    items = OutputItems("resp_abc", byte_tokenizer(), num_logprobs)
    events = [event for delta in deltas for event in items.add(delta)] + items.finish(status)
    return items, [EVENT.validate_python({**event, "sequence_number": n}) for n, event in enumerate(events)]


def joined(events: list[Any]) -> dict[int, str]:
    """Output index -> the join of its deltas."""
    texts: dict[int, str] = {}
    for event in events:
        if event.type.endswith(".delta"):
            texts[event.output_index] = texts.get(event.output_index, "") + event.delta
    return texts


def test_thoughts_text_and_calls_are_items_in_order() -> None:
    items, events = run(THINK_TALK_CALL)
    assert [item["type"] for item in items.items] == ["reasoning", "message", "function_call", "function_call"]
    assert [item["id"] for item in items.items] == ["rs_abc_0", "msg_abc_1", "fc_abc_2", "fc_abc_3"]
    assert [item["status"] for item in items.items] == ["completed"] * 4
    assert items.items[0]["content"] == [{"type": "reasoning_text", "text": "Let me look."}]
    assert items.items[1]["content"] == [{"type": "output_text", "text": "I will ask.", "annotations": [], "logprobs": []}]
    assert (items.items[2]["call_id"], items.items[2]["name"]) == ("call_0", "weather")
    assert items.items[2]["arguments"] == '{"city": "Bern"}' and items.items[3]["arguments"] == "{}"
    assert joined(events) == {0: "Let me look.", 1: "I will ask.", 2: '{"city": "Bern"}', 3: "{}"}


def test_each_item_ends_before_the_next_begins() -> None:
    _, events = run(THINK_TALK_CALL)
    open_items: list[int] = []
    for event in events:
        if event.type == "response.output_item.added":
            assert not open_items and event.item.status == "in_progress"
            open_items.append(event.output_index)
        else:
            assert open_items == [event.output_index]
        if event.type == "response.output_item.done":
            open_items.pop()
    kinds = Counter(event.type for event in events)
    assert kinds["response.output_item.added"] == kinds["response.output_item.done"] == 4
    assert kinds["response.content_part.added"] == kinds["response.content_part.done"] == 2
    assert kinds["response.function_call_arguments.done"] == 2


@pytest.mark.parametrize("deltas", [[], [thought("")], [said("")]])
def test_an_answer_of_nothing_is_an_empty_message(deltas: list[ChoiceDelta]) -> None:
    items, events = run(deltas)
    assert len(items.items) == 1 and items.items[0]["content"][0]["text"] == ""
    assert events[-1].item.status == "completed"


@pytest.mark.parametrize("deltas", [[said("Half")], [thought("Half")], [called(0, '{"ci', "weather")]])
def test_what_a_limit_cut_is_incomplete(deltas: list[ChoiceDelta]) -> None:
    items, events = run([said("Whole."), called(0, "{}", "time"), *deltas], "incomplete")
    assert [item["status"] for item in items.items] == ["completed", "completed", "incomplete"]
    assert events[-1].item.status == "incomplete"


def test_a_call_that_was_cut_is_never_said_to_be_done() -> None:
    _, events = run([called(0, '{"ci', "weather")], "incomplete")
    assert "response.function_call_arguments.done" not in {event.type for event in events}


def test_text_behind_a_call_is_a_message_of_its_own() -> None:
    items, events = run([said("a"), called(0, "{}", "time"), said("b")])
    assert [item["type"] for item in items.items] == ["message", "function_call", "message"]
    assert joined(events) == {0: "a", 1: "{}", 2: "b"}


def test_one_delta_with_everything_is_the_same_as_many() -> None:
    many, _ = run(THINK_TALK_CALL)
    calls = [call for delta in THINK_TALK_CALL for call in delta.tool_calls]
    once, _ = run([ChoiceDelta(index=0, reasoning="Let me look.", content="I will ask.", tool_calls=calls)])
    assert once.items == many.items


def test_logprobs_of_tokens_without_text_go_with_the_next_text() -> None:
    entries = [PositionLogprobs(65 + n, -float(n), 1, [65 + n], [-float(n)], chr) for n in range(4)]
    deltas = [
        ChoiceDelta(index=0, logprobs=entries[:1]),
        ChoiceDelta(index=0, content="xy", logprobs=entries[1:3]),
        ChoiceDelta(index=0, logprobs=entries[3:], finish_reason="stop"),
    ]
    items, events = run(deltas, num_logprobs=1)
    told = [entry.logprob for event in events if event.type == "response.output_text.delta" for entry in event.logprobs]
    whole = [entry["logprob"] for entry in items.items[0]["content"][0]["logprobs"]]
    assert told == whole == [0.0, -1.0, -2.0, -3.0]


def test_the_items_are_what_the_sdk_knows() -> None:
    items, _ = run(THINK_TALK_CALL)
    fields = {"id": "r", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True, "tools": []}
    response = Response.model_validate({**fields, "tool_choice": "auto", "output": items.items})
    assert response.output_text == "I will ask."
