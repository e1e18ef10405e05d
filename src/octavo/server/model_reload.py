"""ModelReload: another model in the place of the one that is served, without a pause."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from octavo.errors import BusyError, ConfigError, InvalidRequestError, LoadError, OctavoError
from octavo.server.context import ServerContext
from octavo.server.service.engine_face import Engine
from octavo.server.service.service import Service

log = logging.getLogger("octavo.server")

POLL_S = 0.05


class ModelReload:
    """Starts the new model in a core process of its own; the old one serves until the new one is ready to.

    start         an engine for the model at a path; raises OctavoError when it cannot be served
    make_service  the service of an engine under the names that follow from the path
    """

    def __init__(
        self,
        context: ServerContext,
        start: Callable[[str], Awaitable[Engine]],
        make_service: Callable[[Engine, str], Service],
    ) -> None:
        self._context = context
        self._start = start
        self._make_service = make_service
        self._is_busy = False
        self._leaving: set[asyncio.Task[None]] = set()

    async def run(self, model_path: str, mode: str) -> Service:
        """Switch to the model at model_path; returns the service that serves from now on.

        mode  "drain": requests under way end on the old model; "abort": they end at once, with an error

        Raises InvalidRequestError naming model_path when the model cannot be served, and BusyError while another reload runs.
        The old model goes on serving then.
        """
        if self._is_busy:
            raise BusyError("another reload is under way; try again when it is done", code="reload_under_way")
        self._is_busy = True
        try:
            engine = await self._start(model_path)
        except (LoadError, ConfigError) as error:
            raise InvalidRequestError(f"{error.message}; the model before goes on serving", param="model_path") from None
        finally:
            self._is_busy = False
        try:
            service = self._make_service(engine, model_path)
        except OctavoError:
            await engine.shutdown()
            raise
        old, self._context.service = self._context.service, service
        log.info("the model is %s now, %s before; mode %s", service.model_name, old.model_name, mode)
        task = asyncio.create_task(self._retire(old, mode))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return service

    async def close(self) -> None:
        """End the old models that still have requests."""
        for task in list(self._leaving):
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)

    async def _retire(self, old: Service, mode: str) -> None:
        try:
            if mode == "abort":
                await old.engine.drain(0.0)
            while self._context.occupancy.of(old):
                await asyncio.sleep(POLL_S)
        finally:
            await old.engine.shutdown()
            log.info("the model before is gone")
