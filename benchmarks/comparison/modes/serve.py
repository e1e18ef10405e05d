"""Servers under a closed loop, and OpenVINO GenAI on the same jobs offline; a sweep is this at several concurrencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from comparison import openvino
from comparison.load import SERVE_METRICS, LoadShape, closed_loop, prepare_jobs
from comparison.report import Comparison
from comparison.rounds import Contestant, alternate
from comparison.servers import Capacity, ServerPeer, server_peers
from comparison.settings import Settings
from octavo.loadgen.workload import Job

MIN_REQUESTS = 8


def compare(settings: Settings, shape: LoadShape, concurrencies: Sequence[int], per_client: int) -> Iterator[Comparison]:
    """One comparison per concurrency, as each is done; every round has prompts of its own, so no cache finds them."""
    for concurrency in concurrencies:
        count = max(MIN_REQUESTS, per_client * concurrency)
        batches = [prepare_jobs(settings, shape, count, seed=index) for index in range(settings.rounds)]
        contestants = [
            Contestant(peer.name, partial(_serve_turn, settings, peer, batches, concurrency, shape.longest))
            for peer in server_peers(settings)
        ]
        if settings.openvino_python is not None:
            contestants.append(Contestant(openvino.NAME, partial(_openvino_turn, settings, batches, concurrency)))
        rounds = alternate(contestants, settings.rounds)
        title = (
            f"closed loop, {concurrency} at once, {count} requests per round, "
            f"prompts of {shape.input_len} and outputs of {shape.output_len} tokens (spread {shape.spread:g})"
        )
        yield Comparison(title, SERVE_METRICS, rounds, settings.rounds)


def _serve_turn(
    settings: Settings, peer: ServerPeer, batches: Sequence[Sequence[Job]], concurrency: int, longest: int, index: int
) -> dict[str, float]:
    with peer.ready(Capacity(concurrency, longest), settings.ready_timeout_s) as url:
        return closed_loop(peer, url, batches[index], concurrency)


def _openvino_turn(settings: Settings, batches: Sequence[Sequence[Job]], concurrency: int, index: int) -> dict[str, float]:
    return openvino.measure_batch(settings, batches[index], concurrency)
