"""What `octavo run-batch` does: open the files, start the engine, answer, stop."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from octavo.config.engine import EngineConfig
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.loader.pypi import FetchReport
from octavo.log import setup_logging
from octavo.server.batch.answers import AnswerFile, AnswerStream, Done
from octavo.server.batch.requests import URLS
from octavo.server.batch.runner import Answers, Plan, Runner, Tally, plan
from octavo.server.run import asyncio_run

if TYPE_CHECKING:
    from fastapi import FastAPI

STANDARD = "-"
Progress = Callable[[Plan], Callable[[Tally], None]]
"""Told what is to be done, it gives what is to be called after each line."""


class BatchStopped(Exception):
    """A signal ended the run; its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run_batch(
    config: EngineConfig, input_name: str, output_name: str, progress: Progress, report: FetchReport | None = None
) -> None:
    """Answer every request of the input that has no answer in the output. "-" is standard input or output.

    Raises: ConfigError for files that cannot be used, BatchStopped after a signal, and what the engine's start raises.
    """
    setup_logging("warning")
    for name, flag in ((input_name, "--input-file"), (output_name, "--output-file")):
        if "://" in name:
            raise ConfigError(f"{flag} is {name[:100]!r}; give a file, for addresses are not opened: fetch it first (curl -O)")
    with ExitStack() as stack:
        source = _open_input(input_name, stack)
        done = Done()
        answers: Answers = AnswerStream(sys.stdout.buffer)
        if output_name != STANDARD:
            if input_name != STANDARD and Path(output_name).exists() and Path(output_name).samefile(input_name):
                raise ConfigError("--input-file and --output-file are the same file", param="output_file")
            file = stack.enter_context(AnswerFile(Path(output_name)))
            answers, done = file, file.recover()
        work = plan(source, done)
        on_done = progress(work)
        if work.lines:
            asyncio_run(_run(config, report, source, answers, work, on_done))


def _open_input(name: str, stack: ExitStack) -> BinaryIO:
    """The input, which is read more than once: standard input is kept until the end of the run."""
    if name == STANDARD:
        return BytesIO(sys.stdin.buffer.read())
    try:
        return stack.enter_context(Path(name).open("rb"))
    except OSError as error:
        raise ConfigError(f"--input-file {name}: {error.strerror or error}", param="input_file") from None


async def _run(
    config: EngineConfig,
    report: FetchReport | None,
    source: BinaryIO,
    answers: Answers,
    work: Plan,
    on_done: Callable[[Tally], None],
) -> None:
    # Imported here, not above: `octavo run-batch --help` and a mistyped flag should not wait for it.
    from octavo.engine.frontend.async_llm_engine import AsyncLLMEngine
    from octavo.engine.frontend.served_model import locate_model
    from octavo.server.app import create_app

    task, stopped_by = asyncio.current_task(), [0]
    assert task is not None

    def stop(number: int) -> None:
        stopped_by[0] = number
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        config = await asyncio.to_thread(locate_model, config, report)
        engine = await AsyncLLMEngine.start(config, log_level="warning")
        try:
            app = create_app(engine, ServerConfig(disable_log_requests=True), model_names=config.loading.served_names)
            runner = Runner(app, source, answers, _urls(app), on_done)
            await runner.run(work, engine.resolved_config.scheduler.max_num_seqs)
        finally:
            await engine.shutdown()
    except asyncio.CancelledError:
        raise BatchStopped(stopped_by[0]) from None


def _urls(app: FastAPI) -> list[str]:
    """Those of URLS that the app has."""
    routes = {getattr(route, "path", "") for route in app.router.routes}
    return [url for url in URLS if url in routes]
