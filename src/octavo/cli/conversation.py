"""Where the interactive commands get their text from: an engine in this process, or a server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from octavo.cli.lazy_progress import lazy_pull_progress
from octavo.config.engine import EngineConfig
from octavo.engine.llm_engine import LLMEngine
from octavo.errors import ConfigError, request_failure
from octavo.loadgen.client import Connection, Target, text_of_event
from octavo.request import new_request_id
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.text.chat_encoding import encode_chat

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What the user may set on the command line; None leaves it to the model."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None

    def given(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in ("temperature", "top_p", "max_tokens", "seed")}
        return {name: value for name, value in values.items() if value is not None}


class TextSource(Protocol):
    """Streams text. Ctrl-C ends the stream, not the program, and `interrupted` is then True."""

    interrupted: bool
    model_name: str

    def answer(self, messages: Sequence[Message], sampling: Sampling) -> Iterator[str]:
        """The answer to a conversation, piece by piece."""

    def continuation(self, prompt: str, sampling: Sampling) -> Iterator[str]:
        """What follows a text, piece by piece."""

    def settings(self, sampling: Sampling) -> str:
        """The sampling settings of an answer, and where they come from, in one line."""

    def close(self) -> None:
        """Let go of the model or the connection."""


class LocalSource:
    """The engine runs in this process, step by step while its text is read."""

    def __init__(self, config: EngineConfig) -> None:
        with lazy_pull_progress() as progress:
            self._engine = LLMEngine(config, report=progress)
        self.model_name = config.loading.served_names[0]
        self.interrupted = False

    def answer(self, messages: Sequence[Message], sampling: Sampling) -> Iterator[str]:
        engine = self._engine
        return self._run(encode_chat(engine.tokenizer, engine.chat_template, messages), sampling)

    def continuation(self, prompt: str, sampling: Sampling) -> Iterator[str]:
        return self._run(self._engine.tokenizer.encode(prompt), sampling)

    def _run(self, token_ids: list[int], sampling: Sampling) -> Iterator[str]:
        engine = self._engine
        request_id = new_request_id()
        values = {"max_tokens": None, **engine.sampling_advice.values} | sampling.given()
        engine.add_request(request_id, token_ids, SamplingParams(**values), output_kind=RequestOutputKind.DELTA)
        self.interrupted = False
        with _interrupt_sets(self):
            try:
                while engine.has_unfinished_requests() and not self.interrupted:
                    for output in engine.step():
                        if output.error is not None:
                            raise request_failure(output.error)
                        yield "".join(choice.text for choice in output.outputs)
            finally:
                engine.abort_request(request_id)
                while engine.has_unfinished_requests():
                    engine.step()

    def settings(self, sampling: Sampling) -> str:
        given, advice = sampling.given(), self._engine.sampling_advice
        values = {"temperature": SamplingParams().temperature, **advice.values} | given
        others = set(advice.values) - set(given)
        source = f" ({'the others ' if given else ''}as {advice.source})" if others else ""
        return _listed(values) + source

    def close(self) -> None:
        self._engine.shutdown()


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items())


@contextmanager
def _interrupt_sets(source: LocalSource) -> Iterator[None]:
    """Within it Ctrl-C sets source.interrupted; a KeyboardInterrupt in the middle of a step could tear the engine's state."""

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        source.interrupted = True

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


class RemoteSource:
    """A server answers; it may be any that speaks OpenAI's API."""

    def __init__(self, target: Target, model: str | None) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = Connection(target)
        self.interrupted = False
        self.model_name = model if model is not None else self._first_model()

    def _first_model(self) -> str:
        models = self._loop.run_until_complete(self._connection.get_json("/v1/models"))
        try:
            return str(models["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise ConfigError("the server lists no model at /v1/models; name one", param="model") from None

    def answer(self, messages: Sequence[Message], sampling: Sampling) -> Iterator[str]:
        return self._run("/v1/chat/completions", {"messages": list(messages)}, sampling)

    def continuation(self, prompt: str, sampling: Sampling) -> Iterator[str]:
        return self._run("/v1/completions", {"prompt": prompt, "max_tokens": None}, sampling)

    def _run(self, path: str, body: dict[str, Any], sampling: Sampling) -> Iterator[str]:
        body = {"model": self.model_name, "stream": True, **body, **sampling.given()}
        events = self._connection.stream_events(path, body)
        self.interrupted = False
        try:
            while (data := self._next(events)) is not None:
                yield text_of_event(data)
        finally:
            self._loop.run_until_complete(events.aclose())

    def settings(self, sampling: Sampling) -> str:
        given = sampling.given()
        return f"{_listed(given)}, the others as the server has them" if given else "as the server has them"

    def _next(self, events: AsyncGenerator[bytes, None]) -> bytes | None:
        """The next event, or None at the end or after Ctrl-C."""

        async def step() -> bytes | None:
            return await anext(events, None)

        task = self._loop.create_task(step())
        self._loop.add_signal_handler(signal.SIGINT, task.cancel)
        try:
            return self._loop.run_until_complete(task)
        except asyncio.CancelledError:
            self.interrupted = True
            return None
        finally:
            self._loop.remove_signal_handler(signal.SIGINT)

    def close(self) -> None:
        self._connection.close()
        self._loop.close()
