"""ServerContext: what every handler needs, passed through `app.state.context`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import cast

from starlette.requests import Request

from octavo.config.server import ServerConfig
from octavo.errors import NotFoundError
from octavo.request import DEFAULT_TENANT
from octavo.server.body_budget import BodyBudget
from octavo.server.engine_face import Engine
from octavo.server.inflight import Inflight


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """The engine, the settings and the names the API answers with.

    model_name          the id in /v1/models and the `model` field of answers
    key_names_tenant    whose a request is says its API key, not its `user` field
    system_fingerprint  octavo version and weights version: equal fingerprints give equal bytes for equal requests
    """

    engine: Engine
    config: ServerConfig
    model_name: str
    key_names_tenant: bool
    system_fingerprint: str
    inflight: Inflight
    bodies: BodyBudget
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def vocab_size(self) -> int:
        """Rows of the model's embedding: ids below it are valid, also where the tokenizer knows fewer."""
        return self.engine.model_config.vocab_size

    @property
    def scheduler_policy(self) -> str:
        """The policy in force: requests may carry a priority only where it reads it."""
        return self.engine.resolved_config.scheduler.scheduler_policy

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output in tokens."""
        return self.engine.max_model_len

    def check_model(self, name: str | None) -> None:
        """Raise NotFoundError unless name is the served model's; None means it."""
        if name is not None and name != self.model_name:
            raise NotFoundError(
                f"the model {name[:100]!r} does not exist; this server has {self.model_name!r}",
                param="model",
                code="model_not_found",
            )


def tenant_of(request: Request, user: str | None) -> str:
    """Whose request it is: the owner of its key where there are several keys, else the `user` it names."""
    owner = getattr(request.state, "key_owner", None)
    if context_of(request).key_names_tenant and owner is not None:
        return cast(str, owner)
    return user or DEFAULT_TENANT


def context_of(request: Request) -> ServerContext:
    """The context of the app that serves this request."""
    return cast(ServerContext, request.app.state.context)
