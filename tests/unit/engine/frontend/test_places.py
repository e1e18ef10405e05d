"""Bodies of several prompts share the seats, and leave some."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from octavo.engine.frontend.places import Body, Places


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Bodies:
    """Bodies with prompts that end when they are told to. held: seats of each."""

    def __init__(self, stack: ExitStack, max_num_seqs: int) -> None:
        self._stack, self._max_num_seqs = stack, max_num_seqs
        self.places, self.bodies = Places(), list[Body]()
        self._leaves: list[list[asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def held(self) -> list[int]:
        return [body.num_held for body in self.bodies]

    async def add(self, num_prompts: int, width: int = 1) -> None:
        body = self._stack.enter_context(self.places.body(width, self._max_num_seqs))
        self.bodies.append(body)
        leaves: list[asyncio.Event] = []
        self._leaves.append(leaves)
        self.tasks += [asyncio.ensure_future(self._prompt(body, leaves)) for _ in range(num_prompts)]
        await turns()

    async def end(self, index: int, count: int) -> None:
        for _ in range(count):
            self._leaves[index].pop(0).set()
            await turns()

    async def _prompt(self, body: Body, leaves: list[asyncio.Event]) -> None:
        async with body.place():
            leave = asyncio.Event()
            leaves.append(leave)
            await leave.wait()


def run(check: Callable[[Bodies], object], max_num_seqs: int = 16) -> None:
    async def main() -> None:
        with ExitStack() as stack:
            bodies = Bodies(stack, max_num_seqs)
            coroutine = check(bodies)
            assert asyncio.iscoroutine(coroutine)
            await coroutine
            for task in bodies.tasks:
                task.cancel()
            await asyncio.gather(*bodies.tasks, return_exceptions=True)
            assert not any(bodies.held)

    asyncio.run(main())


def test_one_body_has_half_two_have_two_thirds_and_share_them() -> None:
    async def check(bodies: Bodies) -> None:
        await bodies.add(100)
        assert bodies.held == [8]
        await bodies.add(100)
        assert bodies.held == [8, 2]
        await bodies.end(0, 8)
        assert sum(bodies.held) == 10 and max(bodies.held) <= 6
        await bodies.add(100)
        assert bodies.held[2] == 2 and sum(bodies.held) == 12

    run(check)


@pytest.mark.parametrize(("width", "held"), [(2, 8), (3, 6), (8, 8), (9, 9), (64, 64)])
def test_a_prompt_takes_a_seat_for_each_choice_and_the_first_always_has_room(width: int, held: int) -> None:
    async def check(bodies: Bodies) -> None:
        await bodies.add(100, width)
        assert bodies.held == [held]
        await bodies.add(100, 1)
        assert bodies.held[1] >= 1

    run(check)


def test_what_a_body_leaves_goes_to_the_others() -> None:
    async def check(bodies: Bodies) -> None:
        await bodies.add(9)
        await bodies.add(100)
        await bodies.end(0, 9)
        assert bodies.held == [0, 6], "the first has not left yet"

    run(check)


def test_who_waits_and_is_cancelled_takes_no_place() -> None:
    async def check(bodies: Bodies) -> None:
        await bodies.add(12)
        for task in bodies.tasks[8:11]:
            task.cancel()
        await turns()
        await bodies.end(0, 8)
        assert bodies.held == [1]
        bodies.tasks[-1].cancel()
        await turns()
        assert bodies.held == [0]

    run(check)
