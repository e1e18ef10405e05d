"""RequestStream: the deliveries of one request on their way to whoever awaits them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from octavo.engine.frontend.outputs import RequestOutput
from octavo.errors import OctavoError, request_failure
from octavo.sampling_params import RequestOutputKind


class RequestStream(AsyncIterator[RequestOutput]):
    """An async iterator for one consumer. Deltas that nobody has fetched yet are joined, so a slow consumer costs one object.

    Iterating raises what `request_failure` makes of it when the request failed, EngineDeadError when the core was lost. `close`
    aborts a request that has not ended; whoever drops a stream early must call it (or use `aclose`).
    """

    def __init__(self, request_id: str, kind: RequestOutputKind, abort: Callable[[str], None]) -> None:
        self.request_id = request_id
        self._kind = kind
        self._abort = abort
        self._pending: RequestOutput | None = None
        self._error: OctavoError | None = None
        self._ended = False
        """No further delivery will come."""
        self._waiter: asyncio.Future[None] | None = None

    def put(self, output: RequestOutput) -> None:
        """Deliver; called by the engine on the event loop."""
        if self._pending is not None and self._kind is RequestOutputKind.DELTA:
            self._pending.append(output)
        else:
            self._pending = output
        if output.finished:
            self._ended = True
            if output.error is not None:
                self._error = request_failure(output.error)
        self._wake()

    def fail(self, error: OctavoError) -> None:
        """End with an error, after what was delivered before."""
        if not self._ended:
            self._ended, self._error = True, error
            self._wake()

    def close(self) -> None:
        """Abort the request unless it has ended, and let nothing more come out."""
        if not self._ended:
            self._ended = True
            self._abort(self.request_id)
        self._pending, self._error = None, None
        self._wake()

    async def aclose(self) -> None:
        """As close, for contextlib.aclosing."""
        self.close()

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> RequestOutput:
        while True:
            output, self._pending = self._pending, None
            if output is not None and not (output.finished and self._error is not None):
                return output
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
