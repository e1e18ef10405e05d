"""The process that renders chat templates: first come their sources, then (name, variables, time in ISO form, source)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from octavo.sandbox.child import Answerer, serve
from octavo.text.template_render import LocalRenderer, TemplateFailed


def main() -> None:
    serve(_renderer)


def _renderer(sources: dict[str, str]) -> Answerer:
    renderer = LocalRenderer(sources)

    def render(request: tuple[str, dict[str, Any], str, str | None]) -> tuple[str, str]:
        name, variables, now, source = request
        try:
            return "text", renderer.render(name, variables, datetime.fromisoformat(now), source)
        except TemplateFailed as error:
            return error.kind, error.reason

    return render
