"""What a step costs outside the worker: scheduling and settling, the wire, and text, for a batch of decoding sequences.

Run:  python benchmarks/engine/step_overhead.py [--sequences 32] [--logprobs 0]
The budget is 5% of a step. Twin: none; the worker here does nothing, so all that is measured is overhead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import deque

import msgspec
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from octavo.config.resolved import ResolvedBackendConfig, ResolvedCacheConfig, ResolvedConfig, ResolvedSchedulerConfig
from octavo.engine.core.build import assemble_core
from octavo.engine.frontend.ledger import Ledger
from octavo.engine.frontend.output_processor import OutputProcessor
from octavo.engine.wire.messages import FromCore, StepOutputs
from octavo.request import Request
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.step import Relayout, RelayoutResult, SampledTokens, StepPlan, StepResult, TokenLogprobs
from octavo.text.tokenizer import Tokenizer, TokenizerSpec

NUM_STEPS = 200


class IdleWorker:
    """Samples token 7 for everybody, in no time."""

    def __init__(self, num_logprobs: int) -> None:
        top = list(range(num_logprobs))
        self._logprobs = [TokenLogprobs(7, -1.0, 1, top, [-1.0] * num_logprobs)] if num_logprobs else []
        self._plans: deque[StepPlan] = deque()

    def start(self, plan: StepPlan) -> None:
        self._plans.append(plan)

    def finish(self) -> StepResult:
        plan = self._plans.popleft()
        sampled = [SampledTokens(share.seq_id, [7], self._logprobs) for share in plan.sequences if share.needs_sample]
        return StepResult(plan.step_id, sampled)

    def drop(self) -> None:
        self._plans.clear()

    def reconfigure(self, relayout: Relayout) -> RelayoutResult:
        raise AssertionError("nothing is changed here")


def letters() -> Tokenizer:
    backend = Backend(models.BPE(vocab={chr(97 + i): i for i in range(26)}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, TokenizerSpec(source="letters"))


def measure(num_sequences: int, num_logprobs: int) -> dict[str, float]:
    """Median microseconds per step of each part."""
    config = ResolvedConfig(
        cache=ResolvedCacheConfig(
            num_gpu_blocks_override=num_sequences * 32, kv_cache_memory=1.0, num_swap_blocks_override=0, swap_space=0.0
        ),
        scheduler=ResolvedSchedulerConfig(max_model_len=512, max_num_seqs=num_sequences),
        backend=ResolvedBackendConfig(num_threads=1),
    )
    core = assemble_core(config, IdleWorker(num_logprobs), b"none")
    outputs = OutputProcessor(letters(), Ledger())
    sampling = SamplingParams(max_tokens=400, stop=["zz"], logprobs=num_logprobs or None)
    for index in range(num_sequences):
        request = Request(
            request_id=f"request-{index}",
            prompt_token_ids=list(range(20)),
            sampling=sampling,
            seed=index,
            max_tokens=400,
            stop_token_ids=[25],
            arrival_s=0.0,
        )
        outputs.add(request, None, RequestOutputKind.DELTA)
        core.add_request(request)
    while core.stats().num_running < num_sequences or core.stats().num_waiting:
        outputs.process(core.step(), 0.0)
    decoder = msgspec.msgpack.Decoder(FromCore)
    times: dict[str, list[float]] = {"core": [], "wire": [], "text": []}
    for _ in range(NUM_STEPS):
        marks = [time.perf_counter()]
        message = core.step()
        marks.append(time.perf_counter())
        received = decoder.decode(msgspec.msgpack.encode(message))
        marks.append(time.perf_counter())
        assert isinstance(received, StepOutputs) and len(received.outputs) == num_sequences
        outputs.process(received, marks[-1])
        marks.append(time.perf_counter())
        for name, start, end in zip(times, marks[:-1], marks[1:], strict=True):
            times[name].append((end - start) * 1e6)
    return {f"{name}_us": round(statistics.median(values), 1) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--logprobs", type=int, default=0)
    arguments = parser.parse_args()
    figures = measure(arguments.sequences, arguments.logprobs)
    print(json.dumps({"sequences": arguments.sequences, "logprobs": arguments.logprobs, **figures}))


if __name__ == "__main__":
    main()
