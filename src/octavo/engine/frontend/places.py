"""Places: how many prompts of bodies with several run at a time, so that whoever comes meanwhile finds a seat beside them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from octavo.config.fair_share import share_of, share_of_all


class Places:
    """Shares the seats between the bodies of one engine as the scheduler shares them between the choices of requests."""

    def __init__(self) -> None:
        self._max_num_seqs = 1
        self._bodies: list[Body] = []

    @contextmanager
    def body(self, width: int, max_num_seqs: int) -> Iterator[Body]:
        """A body whose prompts take `width` seats each, one for every choice. max_num_seqs: all seats there are, for now."""
        self._max_num_seqs = max_num_seqs
        body = Body(self, width)
        self._bodies.append(body)
        try:
            yield body
        finally:
            self._bodies.remove(body)
            self.let_in()

    def has_room(self, body: Body) -> bool:
        """For one more prompt of a body. The first always has room."""
        count, wanted = len(self._bodies), body.num_held + body.width
        if body.num_held == 0:
            return True
        all_held = sum(other.num_held for other in self._bodies)
        most = self._max_num_seqs
        return wanted <= share_of(most, count) and all_held + body.width <= share_of_all(most, count)

    def let_in(self) -> None:
        """Those who wait, as far as there is room, one of each body in turn."""
        waiting = [body for body in self._bodies if body.waiting]
        while waiting:
            waiting = [body for body in waiting if self.has_room(body) and body.let_one_in()]


class Body:
    """The prompts of one body. width: seats that each takes; num_held: seats that those under way have."""

    def __init__(self, places: Places, width: int) -> None:
        self.width = width
        self.num_held = 0
        self.waiting: deque[asyncio.Future[None]] = deque()
        self._places = places

    @asynccontextmanager
    async def place(self) -> AsyncIterator[bool]:
        """Within it a prompt is under way; entering waits for room, in order. Gives whether it had to wait."""
        waits = bool(self.waiting) or not self._places.has_room(self)
        if waits:
            await self._wait()
        else:
            self.num_held += self.width
        try:
            yield waits
        finally:
            self.num_held -= self.width
            self._places.let_in()

    def let_one_in(self) -> bool:
        """Give the one that has waited longest its seats. Whether more wait."""
        while self.waiting:
            future = self.waiting.popleft()
            if not future.done():  # else it was cancelled
                self.num_held += self.width
                future.set_result(None)
                break
        return bool(self.waiting)

    async def _wait(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # it was let in, and will not come
                self.num_held -= self.width
                self._places.let_in()
            raise
