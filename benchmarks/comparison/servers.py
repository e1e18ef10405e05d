"""The servers that can be compared: how each is started, and what its requests need."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from comparison.processes import RunningServer, free_port, running_server, wait_until_ready
from comparison.rounds import OURS
from comparison.settings import Settings

MODEL_NAME = "bench"
"""The name under which the servers that are started here offer their model."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a server must hold: sequences at once, tokens of each."""

    sequences: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ServerPeer:
    """A server to measure.

    command      the command line for a port and a capacity; None for a server that runs already, at `url`
    extra_body   fields that its requests get on top of the load's own
    """

    name: str
    command: Callable[[int, Capacity], list[str]] | None = None
    url: str = ""
    extra_body: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def ready(self, capacity: Capacity, timeout_s: float) -> Iterator[str]:
        """The URL of the server, ready for requests; it is stopped on leaving if it was started here."""
        if self.command is None:
            yield self.url
            return
        with self.starting(capacity) as server:
            wait_until_ready(self.name, server, timeout_s)
            yield server.url

    @contextmanager
    def starting(self, capacity: Capacity) -> Iterator[RunningServer]:
        """The server just after its start, not ready yet."""
        assert self.command is not None
        port = free_port()
        with running_server(self.name, self.command(port, capacity), port) as server:
            yield server


def server_peers(settings: Settings) -> list[ServerPeer]:
    """octavo and every peer the settings name."""
    peers = [ServerPeer(OURS, lambda port, capacity: octavo_command(settings, port, capacity))]
    if settings.llama_server is not None:
        # Every prompt is computed: with the flag of newer builds it would be the same, but the field works with all of them.
        body = {"cache_prompt": False}
        peers.append(
            ServerPeer("llama-server", lambda port, capacity: llama_command(settings, port, capacity), extra_body=body)
        )
    peers += [ServerPeer(name, url=url) for name, url in settings.urls.items()]
    return peers


def octavo_command(settings: Settings, port: int, capacity: Capacity) -> list[str]:
    options: dict[str, object] = {
        "host": "127.0.0.1",
        "port": port,
        "num_threads": settings.threads,
        "max_num_seqs": capacity.sequences,
        "enable_prefix_caching": False,
        "served_model_name": MODEL_NAME,
        **settings.octavo_args,
    }
    command = [sys.executable, "-m", "octavo", "serve", str(settings.model)]
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            command.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            command += [f"--{flag}", str(value)]
    return command


def llama_command(settings: Settings, port: int, capacity: Capacity) -> list[str]:
    """-c is the context of all slots together; continuous batching is llama-server's default."""
    return [
        *(str(settings.llama_server), "-m", str(settings.llama_model), "--alias", MODEL_NAME),
        *("--host", "127.0.0.1", "--port", str(port), "--no-webui"),
        *("-t", str(settings.threads), "-np", str(capacity.sequences), "-c", str(capacity.sequences * capacity.tokens)),
        *settings.llama_args,
    ]
