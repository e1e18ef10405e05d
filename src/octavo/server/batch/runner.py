"""Runs a batch: as many requests at once as the engine has seats, each answer written when it is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from starlette.types import ASGIApp

from octavo.errors import ConfigError, InvalidRequestError
from octavo.server.batch.answers import PASSING, Done, answer_line, fault_line
from octavo.server.batch.asgi import post
from octavo.server.batch.requests import Line, custom_id_of, lines_of, parse_line, read_line

MAX_TRIES = 5
"""Of a request that the engine cannot take (503). One that waits for room (429) is tried for as long as it takes."""
LONGEST_WAIT_S = 30.0


class Answers(Protocol):
    """Where answers go."""

    def append(self, line: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: lines without an answer, those that repeat an id among them; how many have one, and a bad one."""

    lines: list[Line]
    repeated: frozenset[int]
    num_done: int
    num_failed: int


@dataclass(slots=True)
class Tally:
    """Lines that this run has dealt with; failed ones have an error, or a status other than 200."""

    answered: int = 0
    failed: int = 0


def plan(file: BinaryIO, done: Done) -> Plan:
    """Look through the input. Raises ConfigError if the output holds answers to requests that are not in it."""
    lines, repeated, num_done = [], set(), 0
    seen: set[str] = set()
    for line, content in lines_of(file):
        custom_id = custom_id_of(content)
        is_repeated = custom_id is not None and custom_id in seen
        if is_repeated:
            repeated.add(line.number)
        elif custom_id is not None:
            seen.add(custom_id)
        if line.number in done.broken_lines or (custom_id in done.custom_ids and not is_repeated):
            num_done += 1
        else:
            lines.append(line)
    strange = done.custom_ids - seen
    if strange:
        raise ConfigError(
            f"the output file holds answers to other requests (custom_id {min(strange)[:100]!r}); give another --output-file",
            param="output_file",
        )
    return Plan(lines, frozenset(repeated), num_done, done.num_failed)


class Runner:
    """Answers the lines of a plan.

    urls     paths that a line may ask for
    on_done  called after each line
    """

    def __init__(
        self, app: ASGIApp, file: BinaryIO, answers: Answers, urls: Collection[str], on_done: Callable[[Tally], None]
    ) -> None:
        self._app = app
        self._file = file
        self._answers = answers
        self._urls = urls
        self._on_done = on_done
        self.tally = Tally()

    async def run(self, work: Plan, at_once: int) -> None:
        """Until every line has an answer. Cancelling it aborts what runs; what is written stays."""
        lines = iter(work.lines)
        workers = [asyncio.ensure_future(self._work(lines, work.repeated)) for _ in range(min(at_once, len(work.lines)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self, lines: Iterator[Line], repeated: Collection[int]) -> None:
        for line in lines:
            content = read_line(self._file, line)
            try:
                request = parse_line(content, self._urls)
                if line.number in repeated:
                    raise InvalidRequestError(f"custom_id {request.custom_id[:100]!r} stands twice", param="custom_id")
            except InvalidRequestError as error:
                answer, is_good = fault_line(custom_id_of(content), line.number, error), False
            else:
                status, headers, body = await self._ask(request.url, request.body)
                answer = answer_line(request.custom_id, status, headers.get("x-request-id", ""), body)
                is_good = status == 200
            self._answers.append(answer)
            self.tally.answered += 1
            self.tally.failed += not is_good
            self._on_done(self.tally)

    async def _ask(self, url: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """The answer; while the engine has no room, or starts again after a crash, it is asked for anew."""
        tries = 0
        while True:
            answer = await post(self._app, url, body)
            tries += answer[0] == 503
            if answer[0] not in PASSING or tries == MAX_TRIES:
                return answer
            await asyncio.sleep(min(LONGEST_WAIT_S, float(answer[1].get("retry-after", 1)) * 2**tries))
