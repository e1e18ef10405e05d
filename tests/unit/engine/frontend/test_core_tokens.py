"""The core is told the tokens in an idle moment, by the first form if that comes earlier, and anew after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from octavo.engine.frontend import core_tokens
from octavo.engine.frontend.core_tokens import CoreTokens
from octavo.errors import EngineDeadError
from octavo.grammar.tokens import TokenTable

TABLE = TokenTable([b"a"], [], [0])


class Core:
    def __init__(self) -> None:
        self.tables: list[TokenTable] = []
        self.is_alive = self.is_idle = True
        self.num_looks = 0
        self.tokens = CoreTokens(lambda: TABLE, self.send, self.look)

    def send(self, table: TokenTable) -> None:
        if not self.is_alive:
            raise EngineDeadError("there is no core")
        self.tables.append(table)

    def look(self) -> bool:
        self.num_looks += 1
        return self.is_idle


def run(scenario: Callable[[Core], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> Core:
    """With a watcher that looks at every turn of the loop."""
    monkeypatch.setattr(core_tokens, "IDLE_S", 0.0)

    async def whole() -> Core:
        core = Core()
        watcher = asyncio.create_task(core.tokens.tell_when_idle())
        await asyncio.wait_for(scenario(core), 30)
        watcher.cancel()
        return core

    return asyncio.run(whole())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_an_idle_engine_tells_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(core: Core) -> None:
        await until(lambda: bool(core.tables))
        await core.tokens.tell()

    assert run(scenario, monkeypatch).tables == [TABLE]


def test_a_busy_engine_waits_and_the_first_form_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(core: Core) -> None:
        core.is_idle = False
        await until(lambda: core.num_looks > 2)
        assert not core.tables
        await asyncio.gather(core.tokens.tell(), core.tokens.tell(), core.tokens.tell())

    assert run(scenario, monkeypatch).tables == [TABLE]


def test_the_next_core_is_told_anew_also_when_it_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(core: Core) -> None:
        await until(lambda: len(core.tables) == 1)
        core.is_alive = False
        core.tokens.core_lost()
        seen = core.num_looks
        await until(lambda: core.num_looks > seen + 2)
        core.is_alive = True
        await until(lambda: len(core.tables) == 2)

    run(scenario, monkeypatch)


def test_a_form_without_a_core_hears_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(core: Core) -> None:
        core.is_alive = False
        with pytest.raises(EngineDeadError):
            await core.tokens.tell()

    run(scenario, monkeypatch)
