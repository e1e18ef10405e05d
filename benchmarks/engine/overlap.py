"""Whether a core should send a step's outputs while the next step is computed on a thread of its own, or before it begins.

Run:  python benchmarks/engine/overlap.py [--clients 1] [--num-threads 2] [--seconds 15] [--model FILE]
Two cores with the same model take turns of a few steps, so that both meet the same machine. Twin: the inline launcher, which
is what one device has. CPU time counts both threads of the core, and is what a busy machine disturbs least.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from pathlib import Path

from octavo.engine.args import EngineArgs
from octavo.engine.core.build import assemble_core
from octavo.engine.core.engine_core import EngineCore
from octavo.engine.wire.channel import CoreChannel
from octavo.loader.checkpoint import open_checkpoint
from octavo.loader.hub import default_cache_dir, resolve_model
from octavo.models.registry import declare
from octavo.request import Request
from octavo.sampling_params import SamplingParams
from octavo.worker.program import load_and_resolve
from octavo.worker.worker import Worker

PROMPT_TOKENS = 64
MAX_TOKENS = 1500
STEPS_PER_TURN = 24


class Contender:
    """A core that computes for `clients` sequences and sends what they gain."""

    def __init__(self, model: Path, num_threads: int, clients: int, channel: CoreChannel, *, overlap: bool) -> None:
        config = EngineArgs(model=str(model), num_threads=num_threads, max_model_len=2048, kv_cache_memory=1.0)
        checkpoint = open_checkpoint(model, declare, quiet=True)
        loaded, resolved = load_and_resolve(config.create_engine_config(), checkpoint)
        worker = Worker(resolved.config, loaded, overlap=overlap)
        self.core: EngineCore = assemble_core(resolved.config, worker, checkpoint.weights_version, worker.swap_block_s)
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []
        self.send_s: list[float] = []
        self._clients = clients
        self._channel = channel
        self._overlap = overlap
        self._num_requests = 0

    def turn(self) -> None:
        """Some steps, and the figures of those that were decodes of all clients."""
        while len(self._live()) < self._clients:
            self._add()
        pending = self.core.step()
        for _ in range(STEPS_PER_TURN):
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            self._channel.receive(0.0)
            if self._overlap:
                self.core.launch()
            send_s = time.perf_counter()
            self._channel.send(pending)
            self.send_s.append(time.perf_counter() - send_s)
            pending = self.core.step()
            if len(pending.outputs) == self._clients and not pending.started:
                self.wall_s.append(time.perf_counter() - wall_s)
                self.cpu_s.append(time.process_time() - cpu_s)
        self._channel.send(pending)

    def figures(self) -> dict[str, float]:
        """Microseconds per step, and of these to send: the fastest tenth, and the median."""
        figures: dict[str, float] = {"steps": len(self.wall_s)}
        for name, times_s in (("wall", self.wall_s), ("cpu", self.cpu_s), ("send", self.send_s)):
            values = sorted(times_s)
            figures |= {f"{name}_us_p{share}": round(1e6 * values[len(values) * share // 100]) for share in (10, 50)}
        return figures

    def _live(self) -> range:
        stats = self.core.stats()
        return range(stats.num_running + stats.num_waiting)

    def _add(self) -> None:
        self._num_requests += 1
        request = Request(
            request_id=f"request-{self._num_requests}",
            prompt_token_ids=[(7 * index + self._num_requests) % 1000 + 5 for index in range(PROMPT_TOKENS)],
            sampling=SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True),
            seed=self._num_requests,
            max_tokens=MAX_TOKENS,
            stop_token_ids=[],
            arrival_s=time.monotonic(),
        )
        self.core.add_request(request)


def reader() -> socket.socket:
    """Our end of a channel; the process at the other one reads what comes and ends with this one."""
    mine, other = socket.socketpair()
    if os.fork() == 0:
        mine.close()
        while other.recv(2**16):
            pass
        os._exit(0)
    other.close()
    return mine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--num-threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    arguments = parser.parse_args()
    channel = CoreChannel(reader())
    model = resolve_model(arguments.model, cache_dir=default_cache_dir(os.environ))
    contenders = {
        name: Contender(model, arguments.num_threads, arguments.clients, channel, overlap=overlap)
        for name, overlap in (("before the next step", False), ("during the next step", True))
    }
    for contender in contenders.values():
        contender.turn()
        contender.wall_s, contender.cpu_s, contender.send_s = [], [], []
    end_s = time.monotonic() + arguments.seconds
    while time.monotonic() < end_s:
        for contender in contenders.values():
            contender.turn()
    for name, contender in contenders.items():
        print(json.dumps({"sends": name, "clients": arguments.clients, **contender.figures()}))


if __name__ == "__main__":
    main()
