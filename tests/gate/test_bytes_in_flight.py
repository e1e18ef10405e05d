"""The bytes gate for steps in flight together and for drafts: the 48 requests give what they give one step at a time.

That one step at a time is right is what test_bytes.py shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.gate.workload import BLOCK_SIZE, GateRequest, fingerprint, requests, serve_all

from octavo.config.engine import EngineConfig
from octavo.engine.args import EngineArgs
from octavo.engine.core.build import BuiltCore, build_core
from octavo.engine.core.retry import Worker
from octavo.engine.frontend.outputs import RequestOutput
from octavo.engine.llm_engine import LLMEngine
from octavo.scheduler.drafter import Drafter
from octavo.sequence import Sequence
from octavo.step import Relayout, RelayoutResult, StepPlan, StepResult

MAX_MODEL_LEN = 1600
DEPTHS = [1, 2, 3]


class WatchedWorker:
    """Counts the steps in flight, and the drafts."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.num_in_flight = self.most_in_flight = self.num_drafts = self.num_accepted = 0

    def start(self, plan: StepPlan) -> None:
        self.num_in_flight += bool(plan.sequences)
        self.most_in_flight = max(self.most_in_flight, self.num_in_flight)
        self.num_drafts += sum(len(share.draft_token_ids) for share in plan.sequences)
        self._worker.start(plan)

    def finish(self) -> StepResult:
        result = self._worker.finish()
        self.num_in_flight = max(0, self.num_in_flight - 1)
        self.num_accepted += sum(sampled.num_accepted for sampled in result.sampled)
        return result

    def drop(self) -> None:
        self._worker.drop()

    def reconfigure(self, relayout: Relayout) -> RelayoutResult:
        assert not self.num_in_flight, "the steps in flight were not settled first"
        return self._worker.reconfigure(relayout)


class RecordedDrafter:
    """Guesses from answers that are known: always right, always wrong, or now one and now the other."""

    def __init__(self, kind: str, outputs: list[RequestOutput]) -> None:
        self._kind = kind
        self._answers = {(o.request_id, choice.index): choice.token_ids for o in outputs for choice in o.outputs}

    def propose(self, sequence: Sequence, limit: int) -> list[int]:
        done = len(sequence.output_token_ids)
        answer = self._answers[sequence.request.request_id, sequence.choice][done : done + min(limit, 4)]
        return [token if self._is_right(done + i) else (token + 1) % 49152 for i, token in enumerate(answer)]

    def _is_right(self, position: int) -> bool:
        return self._kind == "right" or (self._kind == "random" and position * 7 % 5 > 1)


@pytest.fixture(scope="module")
def jobs() -> list[GateRequest]:
    return requests(vocab_size=49152)


@pytest.fixture(scope="module")
def plain(smollm2_start: Path, jobs: list[GateRequest]) -> list[RequestOutput]:
    """What every other way of serving must equal."""
    engine, _ = make_engine(smollm2_start, 1)
    outputs = serve_all(engine, jobs)
    engine.shutdown()
    return outputs


def make_engine(
    model: Path, depth: int, drafter: Drafter | None = None, *, forces_tokens: bool = True, **options: Any
) -> tuple[LLMEngine, Callable[[], WatchedWorker]]:
    watched: list[WatchedWorker] = []

    def watch(worker: Worker) -> Worker:
        watched.append(WatchedWorker(worker))
        return watched[-1]

    defaults: dict[str, Any] = {
        "model": str(model),
        "num_threads": 1,
        "block_size": BLOCK_SIZE,
        "num_gpu_blocks_override": 1200,
        "max_model_len": MAX_MODEL_LEN,
        "enable_prefix_caching": False,
    }
    config = EngineArgs(**{**defaults, **options}).create_engine_config()

    def make_core(config: EngineConfig) -> BuiltCore:
        return build_core(config, watch, depth=depth, drafter=drafter, forces_tokens=forces_tokens)

    engine = LLMEngine(config, make_core=make_core)
    return engine, lambda: watched[0]


def assert_equal(outputs: list[RequestOutput], plain: list[RequestOutput], how: str) -> None:
    different = [o.request_id for o, p in zip(outputs, plain, strict=True) if fingerprint(o) != fingerprint(p)]
    assert not different, f"{how}: requests {different} differ"


@pytest.mark.parametrize("depth", DEPTHS[1:])
@pytest.mark.parametrize("caching", [False, True])
def test_steps_in_flight_do_not_change_a_byte(
    smollm2_start: Path, jobs: list[GateRequest], plain: list[RequestOutput], depth: int, caching: bool
) -> None:
    engine, worker = make_engine(smollm2_start, depth, enable_prefix_caching=caching, chunked_prefill_size=64)
    assert_equal(serve_all(engine, jobs), plain, f"depth {depth}")
    if caching:
        assert_equal(serve_all(engine, jobs), plain, f"depth {depth}, warm")
        assert engine.stats().prefix_hits > 0
    assert worker().most_in_flight == depth
    engine.shutdown()


@pytest.mark.parametrize("depth", DEPTHS[1:])
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption_with_steps_in_flight_does_not_change_a_byte(
    smollm2_start: Path, jobs: list[GateRequest], plain: list[RequestOutput], depth: int, mode: str
) -> None:
    blocks = 36
    engine, worker = make_engine(
        smollm2_start,
        depth,
        num_gpu_blocks_override=blocks,
        max_model_len=blocks * BLOCK_SIZE,
        preemption_mode=mode,
        admission="eager",
        num_swap_blocks_override=200,
    )
    short = [index for index, job in enumerate(jobs) if len(job.prompt) <= 520]
    outputs = serve_all(engine, [jobs[index] for index in short])
    stats = engine.stats()
    assert stats.num_preemptions > 0 and (stats.swap_in_bytes > 0) == (mode == "swap") and worker().most_in_flight == depth
    assert_equal(outputs, [plain[index] for index in short], f"depth {depth}, {mode}")
    engine.shutdown()


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kind", ["right", "wrong", "random"])
def test_drafts_do_not_change_a_byte(
    smollm2_start: Path, jobs: list[GateRequest], plain: list[RequestOutput], depth: int, kind: str
) -> None:
    engine, worker = make_engine(smollm2_start, depth, RecordedDrafter(kind, plain))
    assert_equal(serve_all(engine, jobs), plain, f"depth {depth}, drafts {kind}")
    watched = worker()
    assert watched.num_drafts > 100 and (watched.num_accepted > 0) == (kind != "wrong")
    assert (watched.num_accepted == watched.num_drafts) == (kind == "right")
    engine.shutdown()


@pytest.mark.parametrize("depth", DEPTHS[1:])
def test_reconfiguring_with_steps_in_flight_does_not_change_a_byte(
    smollm2_start: Path, jobs: list[GateRequest], plain: list[RequestOutput], depth: int
) -> None:
    engine, worker = make_engine(smollm2_start, depth, RecordedDrafter("random", plain))
    for index, job in enumerate(jobs):
        engine.add_request(str(index), job.prompt, job.params)
    changes: list[dict[str, Any]] = [{"block_size": 32}, {"num_blocks": 220}, {"max_num_seqs": 9}, {"block_size": 8}]
    outputs: dict[str, RequestOutput] = {}
    num_steps = 0
    while engine.has_unfinished_requests():
        num_steps += 1
        if changes and num_steps % 3 == 0:
            engine.reconfigure(**changes.pop(0))
        outputs.update({output.request_id: output for output in engine.step()})
    engine.check_integrity()
    assert not changes and worker().most_in_flight == depth
    assert_equal([outputs[str(index)] for index in range(len(jobs))], plain, f"depth {depth}, reconfigured")
    engine.shutdown()
