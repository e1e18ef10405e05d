"""Rig: a core and its text side in one thread, around the fake worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.configs import resolved_config
from tests.fakes import EOS, VOCAB_SIZE, FakeWorker, byte_tokenizer

from octavo.config.model import ModelConfig, RopeConfig
from octavo.engine.core.build import assemble_core
from octavo.engine.core.engine_core import EngineCore
from octavo.engine.frontend.input import InputProcessor
from octavo.engine.frontend.ledger import Ledger
from octavo.engine.frontend.output_processor import OutputProcessor
from octavo.engine.frontend.outputs import RequestOutput
from octavo.sampling_params import RequestOutputKind, SamplingParams

MODEL = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=VOCAB_SIZE,
    hidden_size=32,
    intermediate_size=64,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
    max_position=256,
    norm_eps=1e-5,
    rope=RopeConfig(rotary_dim=16),
    query_scale=0.25,
    eos_token_ids=(EOS,),
)
MAX_MODEL_LEN = 128


class Rig:
    """`now_s` is the time; every step takes one second."""

    def __init__(
        self,
        worker: FakeWorker | None = None,
        num_blocks: int = 64,
        clock: Callable[[], float] = time.monotonic,
        depth: int = 1,
        **scheduler: Any,
    ) -> None:
        self.now_s = 0.0
        self.worker = worker or FakeWorker()
        config = resolved_config(num_blocks, 8, max_model_len=MAX_MODEL_LEN, **scheduler)
        self.core: EngineCore = assemble_core(config, self.worker, b"weights", clock=clock, depth=depth)
        self.ledger = Ledger()
        tokenizer = byte_tokenizer()
        self.input = InputProcessor(tokenizer, MODEL, MAX_MODEL_LEN, random_seed=lambda: 0)
        self.outputs = OutputProcessor(tokenizer, self.ledger)

    def add(
        self,
        request_id: str,
        prompt: str,
        sampling: SamplingParams | None = None,
        kind: RequestOutputKind = RequestOutputKind.CUMULATIVE,
    ) -> None:
        sampling = sampling or SamplingParams(max_tokens=4)
        prepared = self.input.prepare(prompt, sampling, request_id, arrival_s=self.now_s)
        self.outputs.add(prepared.request, prepared.prompt, kind)
        self.core.add_request(prepared.request)

    def step(self) -> list[RequestOutput]:
        self.now_s += 1.0
        processed = self.outputs.process(self.core.step(), self.now_s)
        for request_id, choice in processed.aborts:
            self.core.abort(request_id, choice)
        return processed.outputs

    def abort(self, request_id: str) -> list[RequestOutput]:
        outputs = self.outputs.abort([request_id], self.now_s)
        for output in outputs:
            self.core.abort(output.request_id)
        return outputs

    def run(self) -> dict[str, list[RequestOutput]]:
        """Step until nothing is left; the deliveries by request id. Checks the books at the end."""
        deliveries: dict[str, list[RequestOutput]] = {}
        for _ in range(1000):
            if not self.core.has_work() and self.ledger.num_live == 0:
                break
            for output in self.step():
                deliveries.setdefault(output.request_id, []).append(output)
        assert self.ledger.num_live == 0, "requests never ended"
        self.check_integrity()
        return deliveries

    def check_integrity(self) -> None:
        self.core.check_integrity()
        self.ledger.check_integrity()
