"""RequestStream: deliveries come in order, slow consumers get them joined, ends come once."""

from __future__ import annotations

import asyncio

import pytest

from octavo.engine.frontend.outputs import CompletionOutput, RequestOutput
from octavo.engine.frontend.stream import RequestStream
from octavo.errors import EngineDeadError, RequestFailedError
from octavo.sampling_params import RequestOutputKind


def output(text: str, finished: bool = False, error: str | None = None) -> RequestOutput:
    choice = CompletionOutput(0, text, [1], finish_reason="stop" if finished else None)
    return RequestOutput("r", None, [1], [choice], finished=finished, error=error)


class Owner:
    def __init__(self, kind: RequestOutputKind = RequestOutputKind.DELTA) -> None:
        self.aborted: list[str] = []
        self.stream = RequestStream("r", kind, self.aborted.append)

    async def texts(self) -> list[str]:
        return [found.outputs[0].text async for found in self.stream]


def test_a_waiting_consumer_gets_every_delivery() -> None:
    async def test() -> None:
        owner = Owner()
        reading = asyncio.create_task(owner.texts())
        for text in "abc":
            await asyncio.sleep(0)
            owner.stream.put(output(text, finished=text == "c"))
            await asyncio.sleep(0)
        assert await reading == ["a", "b", "c"]

    asyncio.run(test())


@pytest.mark.parametrize(("kind", "texts"), [(RequestOutputKind.DELTA, ["abc"]), (RequestOutputKind.CUMULATIVE, ["c"])])
def test_a_slow_consumer_gets_one_delivery(kind: RequestOutputKind, texts: list[str]) -> None:
    async def test() -> None:
        owner = Owner(kind)
        for text in "abc":
            owner.stream.put(output(text, finished=text == "c"))
        assert await owner.texts() == texts

    asyncio.run(test())


def test_what_was_delivered_comes_before_the_error_and_the_error_once() -> None:
    async def test() -> None:
        owner = Owner()
        owner.stream.put(output("a"))
        owner.stream.fail(EngineDeadError("gone"))
        owner.stream.fail(EngineDeadError("again"))
        assert (await owner.stream.__anext__()).outputs[0].text == "a"
        with pytest.raises(EngineDeadError, match="gone"):
            await owner.stream.__anext__()
        with pytest.raises(StopAsyncIteration):
            await owner.stream.__anext__()

    asyncio.run(test())


def test_a_failed_request_raises() -> None:
    async def test() -> None:
        owner = Owner()
        owner.stream.put(output("", finished=True, error="broken"))
        with pytest.raises(RequestFailedError, match="broken"):
            await owner.texts()

    asyncio.run(test())


def test_closing_aborts_only_what_still_runs_and_wakes_the_consumer() -> None:
    async def test() -> None:
        owner = Owner()
        reading = asyncio.create_task(owner.texts())
        await asyncio.sleep(0)
        owner.stream.close()
        await owner.stream.aclose()
        assert owner.aborted == ["r"] and await reading == []
        ended = Owner()
        ended.stream.put(output("a", finished=True))
        ended.stream.close()
        assert ended.aborted == []

    asyncio.run(test())
