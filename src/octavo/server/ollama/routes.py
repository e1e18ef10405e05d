"""The table of Ollama's routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.body import Body
from octavo.server.ollama.chat import OllamaChatBody, chat
from octavo.server.ollama.embed import EmbedBody, EmbeddingsBody, embed, embeddings
from octavo.server.ollama.generate import GenerateBody, generate
from octavo.server.ollama.models import ModelBody, ps, pull, root, show, tags, version

Handler = Callable[[Request], Awaitable[Response]]

READ_ROUTES: tuple[tuple[str, Handler], ...] = (
    ("/", root),
    ("/api/version", version),
    ("/api/tags", tags),
    ("/api/ps", ps),
)
BODY_ROUTES: tuple[tuple[str, Handler, type[Body]], ...] = (
    ("/api/chat", chat, OllamaChatBody),
    ("/api/generate", generate, GenerateBody),
    ("/api/embed", embed, EmbedBody),
    ("/api/embeddings", embeddings, EmbeddingsBody),
    ("/api/show", show, ModelBody),
    ("/api/pull", pull, ModelBody),
)
CLOSED_ROUTES: tuple[tuple[str, str], ...] = (
    ("POST", "/api/create"),
    ("POST", "/api/copy"),
    ("POST", "/api/push"),
    ("DELETE", "/api/delete"),
)
"""(method, path) of what would change the store of models: see models.closed."""
