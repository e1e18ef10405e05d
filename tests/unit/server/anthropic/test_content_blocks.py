"""ContentBlocks: deltas as blocks and events; what the events tell adds up to the blocks."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter
from tests.scripted_turn import THINK_TALK_CALL, called, said, thought

from octavo.server.anthropic.blocks import ContentBlocks
from octavo.server.service.chat_turn import ChoiceDelta

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def run(deltas: list[ChoiceDelta]) -> tuple[list[dict[str, Any]], list[Any]]:
    """The blocks, and their events as the SDK reads them."""
    content = ContentBlocks()
    events = [event for delta in deltas for event in content.add(delta)] + content.stop()
    return content.blocks, [EVENT.validate_python(event) for event in events]


def joined(events: list[Any]) -> dict[int, str]:
    """Index of a block -> the join of its deltas."""
    texts: dict[int, str] = {}
    for event in events:
        if event.type == "content_block_delta":
            said = event.delta.model_dump()
            piece = said.get("text") or said.get("thinking") or said.get("partial_json") or ""
            texts[event.index] = texts.get(event.index, "") + piece
    return texts


def test_thoughts_text_and_calls_are_blocks_in_order() -> None:
    blocks, events = run(THINK_TALK_CALL)
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    assert (blocks[0]["thinking"], blocks[1]["text"]) == ("Let me look.", "I will ask.")
    assert (blocks[2]["id"], blocks[2]["name"], blocks[2]["input"]) == ("call_0", "weather", {"city": "Bern"})
    assert blocks[3]["input"] == {}
    assert joined(events) == {0: "Let me look.", 1: "I will ask.", 2: '{"city": "Bern"}', 3: "{}"}


def test_each_block_stops_before_the_next_starts() -> None:
    _, events = run(THINK_TALK_CALL)
    open_blocks: list[int] = []
    for event in events:
        if event.type == "content_block_start":
            assert not open_blocks
            open_blocks.append(event.index)
        assert open_blocks == [event.index]
        if event.type == "content_block_stop":
            open_blocks.pop()
    assert not open_blocks


def test_blocks_start_empty() -> None:
    _, events = run(THINK_TALK_CALL)
    started = [event.content_block for event in events if event.type == "content_block_start"]
    assert [started[0].thinking, started[1].text, started[2].input, started[3].input] == ["", "", {}, {}]


@pytest.mark.parametrize("deltas", [[], [thought("")], [said("")]])
def test_an_answer_of_nothing_has_no_blocks(deltas: list[ChoiceDelta]) -> None:
    assert run(deltas) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "value"),
    [('{"a": 1, "b": "hal', {"a": 1}), ('{"a": [1, 2', {"a": [1, 2]}), ("", {}), ("[1]", {}), ("nonsense", {}), ("{", {})],
)
def test_a_call_that_was_cut_has_what_is_whole(arguments: str, value: dict[str, Any]) -> None:
    blocks, _ = run([called(0, arguments, "f")])
    assert blocks[0]["input"] == value


def test_one_delta_with_everything_is_the_same_as_many() -> None:
    calls = [call for delta in THINK_TALK_CALL for call in delta.tool_calls]
    once, _ = run([ChoiceDelta(index=0, reasoning="Let me look.", content="I will ask.", tool_calls=calls)])
    assert once == run(THINK_TALK_CALL)[0]


def test_the_blocks_are_what_the_sdk_knows() -> None:
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1}}
    message = Message.model_validate({**head, "content": run(THINK_TALK_CALL)[0]})
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
