"""Names of models as Ollama's clients write them: NAME:TAG, where no tag means :latest."""

from __future__ import annotations

from octavo.errors import NotFoundError
from octavo.server.service.service import Service

LATEST = ":latest"


def shown_name(name: str) -> str:
    """A served name as Ollama lists it: with a tag."""
    return name if ":" in name.rpartition("/")[2] else name + LATEST


def is_served(service: Service, name: str) -> bool:
    """Whether name, with or without :latest, is one of the served model's; "" means it."""
    return not name or name in service.model_names or name.removesuffix(LATEST) in service.model_names


def check_model(service: Service, name: str | None) -> None:
    """Raise NotFoundError, in the words that Ollama's clients look for, unless name is one of the served model's."""
    if name and not is_served(service, name):
        known = ", ".join(map(repr, service.model_names))
        raise NotFoundError(
            f"model '{name[:100]}' not found; this server has {known}, and pulls no others",
            param="model",
            code="model_not_found",
        )
