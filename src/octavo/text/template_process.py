"""TemplateProcesses: chat templates rendered in processes that can be killed.

A template is a program that came with the model, and Jinja can neither stop it nor bound what it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from octavo.sandbox.pool import NoAnswerError, ProcessPool
from octavo.text.template_render import MAX_RENDERED_CHARACTERS, TemplateFailed

RENDER_S = 5.0
MAX_PROCESSES = 4
MAX_ANSWER_BYTES = 4 * MAX_RENDERED_CHARACTERS


class TemplateProcesses:
    """A Renderer (see template_render) over up to MAX_PROCESSES processes. Safe to use from several threads.

    render_s  seconds that one rendering may take
    """

    def __init__(self, sources: Mapping[str, str], *, render_s: float = RENDER_S) -> None:
        self._render_s = render_s
        self._pool = ProcessPool(
            "octavo.text.template_child",
            dict(sources),
            seconds=render_s,
            max_processes=MAX_PROCESSES,
            max_answer_bytes=MAX_ANSWER_BYTES,
        )

    def render(self, name: str, variables: Mapping[str, Any], now: datetime, source: str | None = None) -> str:
        try:
            kind, text = self._pool.ask((name, variables, now.isoformat(), source))
        except NoAnswerError as error:
            is_passing = error.cause in ("busy", "closed", "start")
            raise TemplateFailed("busy" if is_passing else "failed", self._reason(error)) from None
        if kind != "text":
            raise TemplateFailed(kind, text)
        return text

    def warm(self) -> None:
        """Start a process without waiting for it."""
        self._pool.warm()

    def close(self) -> None:
        self._pool.close()

    def _reason(self, error: NoAnswerError) -> str:
        return {
            "late": f"the chat template took longer than {self._render_s:g} s; send fewer or shorter messages",
            "ended": "the process that renders the chat template ended; the template may need too much memory",
            "busy": "the chat template is busy with other requests; try again later",
            "closed": "the engine is shut down",
            "start": f"no process for the chat template could be started ({error.detail})",
        }[error.cause]
