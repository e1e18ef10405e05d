"""Inflight: the count and the door."""

from __future__ import annotations

import asyncio

from octavo.server.service.inflight import Inflight


def test_empty_from_the_start() -> None:
    assert asyncio.run(Inflight().wait_empty(0.01))


def test_waits_for_the_last_one_to_leave() -> None:
    async def scenario() -> None:
        inflight = Inflight()
        inflight.enter()
        inflight.enter()
        waiting = asyncio.ensure_future(inflight.wait_empty(5))
        inflight.leave()
        await asyncio.sleep(0)
        assert not waiting.done()
        inflight.leave()
        assert await waiting

    asyncio.run(scenario())


def test_gives_up_after_the_timeout() -> None:
    async def scenario() -> None:
        inflight = Inflight()
        inflight.enter()
        assert not await inflight.wait_empty(0.01)

    asyncio.run(scenario())
