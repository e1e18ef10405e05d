"""Rendering a chat template: in bounded size, with what went wrong in words. Runs here or in a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import jinja2

from octavo.text.jinja_env import TemplateRaised, make_environment

MAX_RENDERED_CHARACTERS = 16_000_000
MAX_BLAMED_MESSAGES = 32
MAX_REASON = 500


class TemplateFailed(Exception):
    """The template did not render. `kind` "raised": it refused the conversation itself; "large": the text is too long;
    "failed": an error in it, or a limit; "busy": there was nobody to render it, so it may work later. `reason` is for the
    client."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class Renderer(Protocol):
    """Renders the named templates of one model, and others whose source is given."""

    def render(self, name: str, variables: Mapping[str, Any], now: datetime, source: str | None = None) -> str:
        """The text of template `name`, or of `source` instead; variables are plain data with "messages" among them.

        Raises TemplateFailed.
        """
        ...

    def warm(self) -> None:
        """Get ready for the first rendering without waiting for it."""
        ...

    def close(self) -> None:
        """Let go of what it holds; renderings that still run fail. Safe to call twice."""
        ...


class LocalRenderer:
    """Renders in this thread, one text at a time: without a limit on time or memory, so for templates that can be trusted."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = dict(sources)
        self._lock = threading.Lock()
        self._now = datetime.min
        self._environment = make_environment(lambda: self._now)
        self._compiled: dict[str, jinja2.Template] = {}

    def render(self, name: str, variables: Mapping[str, Any], now: datetime, source: str | None = None) -> str:
        with self._lock:
            self._now = now
            return self._render(name, variables, source)

    def _render(self, name: str, variables: Mapping[str, Any], source: str | None) -> str:
        template: jinja2.Template | None = None
        try:
            template = self._compiled.get(name) if source is None else self._environment.from_string(source)
            if template is None:
                template = self._compiled[name] = self._environment.from_string(self._sources[name])
            return _render_bounded(template, variables)
        except TemplateRaised as error:
            raise TemplateFailed("raised", str(error)[:MAX_REASON]) from None
        except TemplateFailed:
            raise
        except MemoryError:
            raise TemplateFailed("failed", "it needs more memory than a chat template may have") from None
        except Exception as error:
            place = _blame(template, variables) if template is not None else "its own text"
            reason = f"the chat template failed at {place}: {type(error).__name__}: {str(error)[:MAX_REASON]}"
            raise TemplateFailed("failed", reason) from None

    def warm(self) -> None:
        """Templates are compiled when they are used."""

    def close(self) -> None:
        """Nothing is held."""


def _render_bounded(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    pieces: list[str] = []
    size = 0
    for piece in template.generate(variables):
        size += len(piece)
        if size > MAX_RENDERED_CHARACTERS:
            raise TemplateFailed("large", f"the rendered chat exceeds {MAX_RENDERED_CHARACTERS} characters")
        pieces.append(piece)
    return "".join(pieces)


def _blame(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    """The first message with which rendering fails, found by rendering ever longer beginnings of the chat."""
    chat: Sequence[Mapping[str, Any]] = variables["messages"]
    for count in range(1, min(len(chat), MAX_BLAMED_MESSAGES) + 1):
        try:
            _render_bounded(template, {**variables, "messages": chat[:count]})
        except Exception:
            return f"messages.{count - 1} (role {chat[count - 1]['role']!r})"
    return "messages"
