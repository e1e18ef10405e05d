"""A swap space that grows and shrinks under preempted requests of a tiny model: the same tokens, whatever moved or was lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.tiny_models import prompt
from tests.worker_driver import tiny_checkpoint

from octavo.config.backend import BackendConfig
from octavo.config.cache import GIB, CacheConfig
from octavo.config.changes import Changes
from octavo.config.engine import EngineConfig
from octavo.config.loading import LoadingConfig
from octavo.config.scheduler import SchedulerConfig
from octavo.engine.core.build import build_core
from octavo.engine.core.engine_core import EngineCore
from octavo.errors import ConfigError
from octavo.request import Request
from octavo.sampling_params import SamplingParams

AMPLE = EngineConfig(
    cache=CacheConfig(block_size=8, num_gpu_blocks_override=200),
    scheduler=SchedulerConfig(max_model_len=120, admission="eager", preemption_mode="swap"),
    backend=BackendConfig(num_threads=1),
)
SLOTS = (2, 40, 5, 1, 9, 3, 60, 4, 30, 7)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), "llama-gqa").path


def core_of(model: Path, **cache: int | str) -> EngineCore:
    loading = LoadingConfig(model=str(model), dtype="float32")
    return build_core(replace(AMPLE, loading=loading, cache=replace(AMPLE.cache, **cache))).core  # type: ignore[arg-type]


def add_requests(core: EngineCore) -> None:
    for index in range(8):
        sampling = SamplingParams(temperature=0.8, max_tokens=40)
        core.add_request(
            Request(
                request_id=str(index),
                prompt_token_ids=prompt(f"swap {index}", 20 + 5 * index),
                sampling=sampling,
                seed=index,
                max_tokens=40,
                stop_token_ids=[],
                arrival_s=float(index),
            )
        )


def step(core: EngineCore, answers: dict[str, list[int]]) -> None:
    for output in core.step().outputs:
        assert output.error is None
        answers.setdefault(output.request_id, []).extend(output.token_ids)
    core.check_integrity()


@pytest.mark.parametrize("where", ["memory", "file"])
def test_the_swap_space_changes_its_size_without_changing_a_byte(model: Path, tmp_path: Path, where: str) -> None:
    expected: dict[str, list[int]] = {}
    core = core_of(model)
    add_requests(core)
    while core.has_work():
        step(core, expected)
    path = tmp_path / "swap"
    options = {"swap_path": str(path)} if where == "file" else {}
    core = core_of(model, num_gpu_blocks_override=15, num_swap_blocks_override=60, **options)
    block_bytes = round((core.config.cache.swap_space or 0) * GIB) // 60
    add_requests(core)
    answers: dict[str, list[int]] = {}
    sizes, num_swapped = 0, []
    while core.has_work():
        step(core, answers)
        num_swapped.append(core.stats().num_swapped_blocks)
        if num_swapped[-1] and core.stats().num_steps % 2 == 0:
            num_slots = SLOTS[sizes % len(SLOTS)]
            report = core.reconfigure(Changes(swap_space=num_slots * block_bytes / GIB))
            sizes += 1
            assert core.stats().num_swap_blocks == num_slots and report.num_preempted == 0
            assert core.stats().num_swapped_blocks == min(num_slots, num_swapped[-1])
            assert where == "memory" or path.stat().st_size == 4096 + num_slots * block_bytes
            core.check_integrity()
    assert answers == expected
    assert sizes >= len(SLOTS) and core.stats().swap_in_bytes > 0 and core.stats().num_swap_failures == 0


def test_a_swap_space_can_be_made_and_taken_away_while_the_engine_runs(model: Path) -> None:
    core = core_of(model, num_swap_blocks_override=1)
    with pytest.raises(ConfigError, match="preemption-mode swap needs a swap space") as refused:
        core.reconfigure(Changes(swap_space=0))
    assert refused.value.param == "preemption_mode" and core.stats().num_swap_blocks == 1
    core.reconfigure(Changes(swap_space=0, preemption_mode="auto"))
    assert core.stats().num_swap_blocks == 0
    core.reconfigure(Changes(swap_space=0.01))
    assert core.stats().num_swap_blocks > 1
    with pytest.raises(ConfigError, match="only .* GiB of memory are free") as refused:
        core.reconfigure(Changes(swap_space=60000, max_num_seqs=2))
    assert refused.value.param == "swap_space" and core.config.scheduler.max_num_seqs == 64
