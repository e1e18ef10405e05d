"""`think`: whether the model reasons before it answers, and what its chat template is told of it."""

from __future__ import annotations

from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.service.service import Service

LEVELS = ("low", "medium", "high")


def can_think(service: Service) -> bool:
    """Whether the model writes its reasoning in a way that is known here."""
    return service.dialect.reasoning is not None


def template_kwargs(think: Any, service: Service) -> dict[str, Any] | None:
    """Variables of the chat template for this value of `think`; None leaves it to the model. Raises InvalidRequestError."""
    if think is None:
        return None
    if not isinstance(think, bool) and think not in LEVELS:
        raise InvalidRequestError(
            f"think is {repr(think)[:100]}; it must be true, false, or one of {', '.join(LEVELS)}", param="think"
        )
    if think is False:
        return {"enable_thinking": False} if can_think(service) else None
    if not can_think(service):
        raise InvalidRequestError(
            f'"{service.model_name}" does not support thinking: its chat template has no switch for it; leave think out',
            param="think",
            code="unsupported_field",
        )
    return {"enable_thinking": True, **({} if think is True else {"reasoning_effort": think})}
