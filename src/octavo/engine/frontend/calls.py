"""CoreCalls: questions to the core process that are awaited one by one, beside the stream of steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from octavo.engine.wire.messages import Answer, CallFailed, ToCore
from octavo.errors import ConfigError, EngineDeadError, RequestFailedError


class CoreCalls:
    """Each question gets exactly one end: its answer, or EngineDeadError when the core is lost. Belongs to one event loop."""

    def __init__(self, send: Callable[[ToCore], None]) -> None:
        self._send = send
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}

    async def ask(self, question: Callable[[int], ToCore]) -> Answer:
        """Send what `question` makes of a call id and await the answer.

        Raises: ConfigError when it was refused, RequestFailedError when it failed inside, EngineDeadError without a core.
        """
        call_id = next(self._ids)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = future
        try:
            self._send(question(call_id))
            answer = await future
        finally:
            del self._waiting[call_id]
        if isinstance(answer, CallFailed):
            if answer.kind == "config":
                raise ConfigError(answer.message, param=answer.param)
            raise RequestFailedError(f"the engine could not do it: {answer.message}")
        return answer

    def answered(self, answer: Answer) -> None:
        """An answer has come; nobody may wait for it any more."""
        future = self._waiting.get(answer.call_id) if answer.call_id is not None else None
        if future is not None and not future.done():
            future.set_result(answer)

    def fail_all(self, cause: str) -> None:
        """The core is gone: no answer will come."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EngineDeadError(f"the engine core {cause}"))
