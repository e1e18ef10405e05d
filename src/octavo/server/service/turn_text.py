"""What protocols of one answer need of a turn besides its deltas."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager

from octavo.dialogue.calls import ToolCallDelta
from octavo.errors import InvalidRequestError
from octavo.server.service.chat_turn import ChatTurn, ChoiceDelta, ChoiceMessage
from octavo.server.service.generation import Usage
from octavo.text.tokenizer import Tokenizer


async def deltas_of(turn: ChatTurn, *, keeps_order: bool) -> AsyncGenerator[ChoiceDelta, None]:
    """The deltas of a turn of one choice, for an answer that is not streamed.

    keeps_order  there may be calls: deltas tell where text stood between them, which a whole message does not. Without, the
                 answer comes as one delta, which costs less
    """
    if not keeps_order:
        (message,) = await turn.collect()
        yield _as_delta(message)
        return
    async with aclosing(turn.run()) as outputs:
        async for deltas in outputs:
            for delta in deltas:
                yield delta


def _as_delta(message: ChoiceMessage) -> ChoiceDelta:
    calls = [
        ToolCallDelta(index=index, id=call.id, name=call.name, arguments=call.arguments)
        for index, call in enumerate(message.tool_calls)
    ]
    return ChoiceDelta(
        index=message.index,
        reasoning=message.reasoning or "",
        content=message.content or "",
        tool_calls=calls,
        token_ids=message.token_ids,
        logprobs=message.logprobs,
        finish_reason=message.finish_reason,
        stop_reason=message.stop_reason,
    )


async def count_reasoning(tokenizer: Tokenizer, usage: Usage, reasoning: str) -> int:
    """Tokens of the reasoning. Where no token of its own ends it, those that its text comes to: the same streamed or not."""
    if not reasoning:
        return 0
    if usage.reasoning_tokens is not None:
        return usage.reasoning_tokens
    token_ids = await asyncio.to_thread(tokenizer.encode, reasoning, add_special_tokens=False)
    return min(len(token_ids), usage.completion_tokens)


@contextmanager
def named_as(names: Mapping[str, str]) -> Iterator[None]:
    """Errors raised inside name fields as the client knows them: names maps the words of a chat to the protocol's own."""
    try:
        yield
    except InvalidRequestError as error:
        for name, own in names.items():
            word = re.compile(r"(?<![\w.])" * name[0].isalnum() + re.escape(name) + r"(?!\w)" * name[-1].isalnum())
            error.message = word.sub(own, error.message)
            error.param = error.param and word.sub(own, error.param)
        error.args = (error.message,)
        raise
