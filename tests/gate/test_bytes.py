"""The bytes gate: a request's tokens and logprobs are a function of weights, request and seed alone.

48 mixed requests give identical bytes alone and in company, whole and in chunks, cold and warm, preempted, on one thread and
several, eager and from the tape, streamed and not. Each test asserts that its mechanism really ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.gate.witness import ThreadClock, Witness
from tests.gate.workload import BLOCK_SIZE, GateRequest, fingerprint, requests, serve_all, serve_alone

from octavo.engine.args import EngineArgs
from octavo.engine.frontend.outputs import RequestOutput
from octavo.engine.llm_engine import LLMEngine
from octavo.errors import ConfigError
from octavo.models.decoder import Decoder
from octavo.sampling_params import RequestOutputKind

MAX_MODEL_LEN = 1600
AMPLE_BLOCKS = 1200


def make_engine(model: Path, **options: Any) -> LLMEngine:
    defaults: dict[str, Any] = {
        "model": str(model),
        "num_threads": 1,
        "block_size": BLOCK_SIZE,
        "num_gpu_blocks_override": AMPLE_BLOCKS,
        "max_model_len": MAX_MODEL_LEN,
        "enable_prefix_caching": False,
    }
    return LLMEngine.from_engine_args(EngineArgs(**{**defaults, **options}))


@pytest.fixture(scope="module")
def jobs() -> list[GateRequest]:
    return requests(vocab_size=49152)


@pytest.fixture(scope="module")
def alone(smollm2_start: Path, jobs: list[GateRequest]) -> Iterator[list[bytes]]:
    """Each request by itself, cold, whole prompt in one chunk: what every other way of serving must equal."""
    engine = make_engine(smollm2_start, max_num_batched_tokens=2048, chunked_prefill_size=2048)
    witness = Witness(engine)
    outputs = serve_alone(engine, jobs)
    engine.shutdown()
    assert witness.num_together == max(job.params.n for job in jobs), "a request was not alone"
    assert witness.num_cut == witness.num_computed_again == 0, "a prompt was not computed in one piece"
    assert len({fingerprint(output) for output in outputs}) == len(jobs)
    yield [fingerprint(output) for output in outputs]


def assert_equal(outputs: list[RequestOutput], alone: list[bytes], how: str) -> None:
    different = [index for index, output in enumerate(outputs) if fingerprint(output) != alone[index]]
    assert not different, f"{how}: requests {different} differ from what they give alone"


def test_one_batch_gives_the_same_bytes(smollm2_start: Path, jobs: list[GateRequest], alone: list[bytes]) -> None:
    engine = make_engine(smollm2_start)
    witness = Witness(engine)
    assert_equal(serve_all(engine, jobs), alone, "one batch")
    assert witness.num_together >= 12, "the requests did not run together"
    engine.shutdown()


@pytest.mark.parametrize("chunk", [16, 2048])
def test_chunk_size_does_not_change_a_byte(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[bytes], chunk: int
) -> None:
    engine = make_engine(smollm2_start, num_threads=2, chunked_prefill_size=chunk, max_num_batched_tokens=max(256, chunk))
    witness = Witness(engine)
    assert_equal(serve_all(engine, jobs), alone, f"chunks of {chunk}")
    for num_prompt, sizes in witness.chunks():
        assert sum(sizes) == num_prompt and max(sizes) <= chunk and len(sizes) >= num_prompt / chunk, (num_prompt, sizes)
    assert witness.num_cut > 0, "no prompt was cut"
    engine.shutdown()


def test_a_prompt_longer_than_the_largest_step_is_cut_and_gives_the_same_bytes(
    smollm2_start: Path, jobs: list[GateRequest]
) -> None:
    """Alone and whole in a step of 4,096; behind each other and cut in steps of 2,048, whose chunks are of every size."""
    chunk, size = 2048, 2600
    prompt = [token for job in jobs for token in job.prompt]
    long = [GateRequest(prompt[start : start + size], jobs[start].params) for start in (0, 4, 8)]
    options: dict[str, Any] = {"max_model_len": 2700, "num_gpu_blocks_override": 3 * 2700 // BLOCK_SIZE + 3}
    engine = make_engine(smollm2_start, max_num_batched_tokens=4096, chunked_prefill_size=4096, **options)
    whole = Witness(engine)
    expected = [fingerprint(output) for output in serve_alone(engine, long)]
    engine.shutdown()
    assert [sizes for _, sizes in whole.chunks()] == [[size]] * 3
    engine = make_engine(smollm2_start, max_num_batched_tokens=chunk, chunked_prefill_size=chunk, **options)
    witness = Witness(engine)
    assert_equal(serve_all(engine, long), expected, "longer than a step")
    engine.shutdown()
    assert witness.num_cut == 3 and max(sizes[0] for _, sizes in witness.chunks()) == chunk


def test_cold_and_warm_prefix_cache_give_the_same_bytes(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[bytes]
) -> None:
    engine = make_engine(smollm2_start, enable_prefix_caching=True)
    assert_equal(serve_all(engine, jobs), alone, "cold cache")
    warm = serve_all(engine, jobs)
    assert_equal(warm, alone, "warm cache")
    hits = [output.num_cached_tokens for output, job in zip(warm, jobs, strict=True) if job.params.prompt_logprobs is None]
    expected = [(len(job.prompt) >= BLOCK_SIZE) for job in jobs if job.params.prompt_logprobs is None]
    assert [hit > 0 for hit in hits] == expected, "the cache was not really used"
    engine.shutdown()


@pytest.mark.parametrize("caching", [False, True])
def test_preemption_by_recompute_does_not_change_a_byte(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[bytes], caching: bool
) -> None:
    # The pool holds little more than the longest of these requests, so that growing sequences push each other out.
    blocks = 34
    engine = make_engine(
        smollm2_start,
        num_gpu_blocks_override=blocks,
        max_model_len=blocks * BLOCK_SIZE,
        enable_prefix_caching=caching,
        preemption_mode="recompute",
        admission="eager",  # the others learn how long answers are and avoid what is tested here
    )
    witness = Witness(engine)
    short = [index for index, job in enumerate(jobs) if len(job.prompt) <= 520]
    outputs = serve_all(engine, [jobs[index] for index in short])
    stats = engine.stats()
    assert stats.num_preemptions > 0 and stats.num_swap_preemptions == 0, "nothing was preempted to be computed again"
    assert witness.num_computed_again > 0, "nothing was computed again"
    assert_equal(outputs, [alone[index] for index in short], f"preempted, prefix caching {caching}")
    engine.shutdown()


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("kv_cache_dtype", ["auto", "int8"])
def test_preemption_by_swap_does_not_change_a_byte(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[bytes], tmp_path: Path, where: str, kv_cache_dtype: str
) -> None:
    blocks, file = 36, tmp_path / "swap"
    options: dict[str, Any] = {
        "kv_cache_dtype": kv_cache_dtype,
        "num_gpu_blocks_override": blocks,
        "max_model_len": blocks * BLOCK_SIZE,
        "preemption_mode": "swap",
        "admission": "eager",
        "num_swap_blocks_override": 200,
        "swap_path": str(file) if where == "file" else None,
    }
    short = [index for index, job in enumerate(jobs) if len(job.prompt) <= 520]
    expected = [alone[index] for index in short]
    if kv_cache_dtype != "auto":
        ample = make_engine(smollm2_start, kv_cache_dtype=kv_cache_dtype)
        expected = [fingerprint(output) for output in serve_all(ample, [jobs[index] for index in short])]
        ample.shutdown()
    engine = make_engine(smollm2_start, **options)
    assert file.exists() == (where == "file") and (where == "memory" or file.stat().st_mode & 0o777 == 0o600)
    outputs = serve_all(engine, [jobs[index] for index in short])
    stats = engine.stats()
    assert stats.num_swap_preemptions > 0 and stats.num_swap_failures == 0
    assert stats.swap_out_bytes > 0 and stats.swap_in_bytes > 0, "nothing was moved both ways"
    assert_equal(outputs, expected, f"swapped to {where}, KV cache {kv_cache_dtype}")
    engine.shutdown()
    del engine
    assert not file.exists()


@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_swap_space_that_changes_its_size_does_not_change_a_byte(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[bytes], tmp_path: Path, where: str
) -> None:
    """Shorter requests push out longer ones, which wait in a swap space that shrinks and grows; other limits change, too."""
    blocks, num_slots, sizes = 60, 200, (190, 120, 200, 60, 150, 20, 10)
    engine = make_engine(
        smollm2_start,
        num_gpu_blocks_override=blocks,
        max_model_len=blocks * BLOCK_SIZE,
        preemption_mode="swap",
        scheduler_policy="priority",
        admission="eager",
        num_swap_blocks_override=num_slots,
        swap_path=str(tmp_path / "swap") if where == "file" else None,
    )
    slot_gib = (engine.resolved_config.cache.swap_space or 0.0) / num_slots
    waiting = [index for index, job in enumerate(jobs) if len(job.prompt) <= 520]
    waiting.sort(key=lambda index: -len(jobs[index].prompt))
    indices, outputs = list(waiting), {}
    seen: list[tuple[int, int, int]] = []
    while waiting or engine.has_unfinished_requests():
        for index in waiting[:2]:
            job, priority = jobs[index], len(waiting)
            engine.add_request(str(index), job.prompt, job.params, priority=priority, output_kind=RequestOutputKind.FINAL_ONLY)
        del waiting[:2]
        outputs.update({output.request_id: output for output in engine.step()})
        before = engine.stats().num_swapped_blocks
        if before and not waiting and engine.stats().num_steps % 3 == 0:
            changes = {"swap_space": sizes[len(seen) % len(sizes)] * slot_gib, "target_itl": 30.0 * (len(seen) % 2)}
            assert engine.reconfigure(**changes, max_wait=60.0 + len(seen)).num_preempted == 0
            seen.append((before, engine.stats().num_swapped_blocks, engine.stats().num_swap_blocks))
    engine.check_integrity()
    stats = engine.stats()
    assert stats.swap_in_bytes > 0 and stats.num_swap_failures == 0
    assert any(0 < after < before for before, after, _ in seen), f"nothing was lost: {seen}"
    assert any(before == after < size < num_slots for before, after, size in seen), f"nothing was kept in less room: {seen}"
    assert_equal(
        [outputs[str(index)] for index in indices], [alone[index] for index in indices], f"swap space resized, {where}"
    )
    engine.shutdown()


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_the_number_of_threads_does_not_change_a_byte(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[bytes], num_threads: int
) -> None:
    engine = make_engine(smollm2_start, num_threads=num_threads)
    clock = ThreadClock()
    assert_equal(serve_all(engine, jobs), alone, f"{num_threads} threads")
    assert clock.num_busy() == num_threads
    engine.shutdown()


@pytest.mark.parametrize("eager", [False, True])
def test_eager_mode_does_not_change_a_byte(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[bytes], eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    forward = Decoder.forward

    def counted(model: Any, ops: Any) -> Any:
        calls.append(model)
        return forward(model, ops)

    monkeypatch.setattr(Decoder, "forward", counted)
    engine = make_engine(smollm2_start, enforce_eager=eager)
    num_at_start, witness = len(calls), Witness(engine)
    assert_equal(serve_all(engine, jobs), alone, "eager" if eager else "tape")
    num_passes = len(calls) - num_at_start
    assert num_passes >= witness.num_steps if eager else num_passes == 0, f"the model's Python ran {num_passes} times"
    if eager:
        with pytest.raises(ConfigError, match="only the tape counts"):
            engine.program.start_profile()
    engine.shutdown()


@pytest.mark.parametrize("block_size", [8, 32, 64])
def test_the_block_size_does_not_change_a_byte(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[bytes], block_size: int
) -> None:
    engine = make_engine(smollm2_start, block_size=block_size, num_gpu_blocks_override=AMPLE_BLOCKS * BLOCK_SIZE // block_size)
    assert_equal(serve_all(engine, jobs), alone, f"blocks of {block_size}")
    memory = engine.memory_stats()
    assert memory.block_size == block_size != BLOCK_SIZE
    assert memory.high_water * block_size >= max(len(job.prompt) for job in jobs), "the blocks hold more than they can"
    engine.shutdown()


def test_streamed_deltas_join_to_the_same_bytes(smollm2_start: Path, jobs: list[GateRequest], alone: list[bytes]) -> None:
    engine = make_engine(smollm2_start)
    heard: Counter[int] = Counter()
    outputs = serve_all(engine, jobs, RequestOutputKind.DELTA, heard)
    assert_equal(outputs, alone, "streamed")
    engine.shutdown()
    for index, output in enumerate(outputs):
        longest = max(len(choice.token_ids) for choice in output.outputs)
        # A delivery brings what a step gained; only text that waits for the rest of a stop string may hold one back.
        assert heard[index] >= (2 if jobs[index].params.stop else longest), f"request {index} came in {heard[index]} pieces"


CHANGES: tuple[dict[str, int], ...] = (
    {"block_size": 32},
    {"block_size": 8, "chunked_prefill_size": 48, "max_num_batched_tokens": 96},
    {"num_blocks": 220},  # 1,760 slots: fewer than those in use
    {"num_blocks": 1800, "max_num_seqs": 40, "max_num_batched_tokens": 300, "chunked_prefill_size": 300},
    {"block_size": 24},
    {"max_num_seqs": 7},
    {"block_size": 16},
)


@pytest.mark.parametrize("options", [{"enable_prefix_caching": True}, {}, {"kv_cache_dtype": "bfloat16"}])
def test_reconfiguring_while_requests_run_does_not_change_a_byte(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[bytes], options: dict[str, Any]
) -> None:
    if "kv_cache_dtype" in options:
        # Other roundings, other bytes: what they must equal is the same storage type without any change.
        engine = make_engine(smollm2_start, **options)
        alone = [fingerprint(output) for output in serve_all(engine, jobs)]
        engine.shutdown()
    engine = make_engine(smollm2_start, **options)
    for index, job in enumerate(jobs):
        engine.add_request(str(index), job.prompt, job.params, output_kind=RequestOutputKind.FINAL_ONLY)
    changes, reports, outputs = list(CHANGES), [], {}
    while engine.has_unfinished_requests():
        if changes and engine.stats().num_steps >= 3 * (len(CHANGES) - len(changes) + 1):
            reports.append(engine.reconfigure(**changes.pop(0)))
        outputs.update({output.request_id: output for output in engine.step()})
    engine.check_integrity()
    engine.shutdown()
    assert_equal([outputs[str(index)] for index in range(len(jobs))], alone, f"reconfigured, {options}")
    assert not changes and sum(report.num_preempted for report in reports) > 0
    moved = [report.num_moved_tokens for report in reports if "block_size" in report.changed]
    assert len(moved) == 4 and min(moved) > 0 and sum(moved) > 2000, moved
