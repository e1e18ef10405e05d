"""From the command to the first token, and the memory of all its processes then, with the files in the page cache."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from comparison import openvino
from comparison.load import WARM_UP
from comparison.processes import PeerError, RunningServer, check_alive, tree_memory_mib
from comparison.ratios import Metric
from comparison.report import Comparison
from comparison.rounds import Contestant, alternate
from comparison.servers import MODEL_NAME, Capacity, ServerPeer, server_peers
from comparison.settings import Settings
from octavo.loadgen.client import Connection, parse_target, timed_completion
from octavo.loadgen.runner import LoadSpec, completion_body
from octavo.loadgen.workload import Job

METRICS = (
    Metric("first_token_s", "command to first token", "s", False),
    Metric("pss_mib", "memory, shared once", "MiB", False),
    Metric("rss_mib", "resident memory, sum", "MiB", False),
)
RETRY_S = 0.01


def compare(settings: Settings, capacity: Capacity) -> Comparison:
    """Start everybody in turns; one more round before the first fills the page cache and is not counted."""
    peers = [peer for peer in server_peers(settings) if peer.command is not None]
    contestants = [Contestant(peer.name, partial(_turn, settings, peer, capacity)) for peer in peers]
    if settings.openvino_python is not None:
        contestants.append(Contestant(openvino.NAME, partial(_openvino_turn, settings)))
    alternate(contestants, 1)
    rounds = alternate(contestants, settings.rounds)
    notes = ["memory: all processes of the command, mapped model file included, as Linux counts it (Pss and Rss)"]
    if settings.openvino_python is not None:
        notes.append(f"{openvino.NAME}: the whole command with a prompt of one output token, and its peak of resident memory")
    title = f"start-up, room for {capacity.sequences} sequences of {capacity.tokens} tokens, {settings.threads} threads"
    return Comparison(title, METRICS, rounds, settings.rounds, notes)


def _turn(settings: Settings, peer: ServerPeer, capacity: Capacity, index: int) -> dict[str, float]:
    with peer.starting(capacity) as server:
        seconds = asyncio.run(_first_token(peer, server, settings.ready_timeout_s))
        return {"first_token_s": seconds, **tree_memory_mib(server.process.pid)}


async def _first_token(peer: ServerPeer, server: RunningServer, timeout_s: float) -> float:
    """Seconds from the start of the process to the arrival of the first text; asks until somebody answers."""
    connection = Connection(parse_target(server.url))
    spec = LoadSpec(model=MODEL_NAME, extra_body=peer.extra_body)
    try:
        while True:
            timing = await timed_completion(connection, spec.path, completion_body(WARM_UP, spec), WARM_UP.prompt_len)
            if timing.error is None:
                return timing.start_s + timing.ttft_s - server.start_s
            check_alive(peer.name, server)
            if time.perf_counter() - server.start_s > timeout_s:
                raise PeerError(f"{peer.name}: no token after {timeout_s:.0f} s: {timing.error}")
            await asyncio.sleep(RETRY_S)
    finally:
        connection.close()


def _openvino_turn(settings: Settings, index: int) -> dict[str, float]:
    start_s = time.perf_counter()
    result = openvino.run_batch(settings, [Job(WARM_UP.prompt, WARM_UP.prompt_len, 1)], 1)
    return {"first_token_s": time.perf_counter() - start_s, "rss_mib": result.get("peak_rss_mib", 0.0)}
