"""The order at start: parameters are loaded, what they leave is measured, the KV cache gets its share of that."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worker_driver import tiny_checkpoint

from octavo.config.backend import BackendConfig
from octavo.config.cache import GIB, CacheConfig
from octavo.config.engine import EngineConfig
from octavo.config.scheduler import SchedulerConfig
from octavo.errors import ConfigError
from octavo.loader.checkpoint import Checkpoint
from octavo.ops.cpu.backend import CpuBackend
from octavo.ops.reference.backend import ReferenceBackend
from octavo.worker.memory import kv_block_bytes
from octavo.worker.program import load_and_resolve


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("loaded"), "llama-gqa")


def config_of(device: str = "cpu", **cache: Any) -> EngineConfig:
    return EngineConfig(
        cache=CacheConfig(**cache),
        scheduler=SchedulerConfig(max_model_len=64, max_num_seqs=256),
        backend=BackendConfig(device=device, num_threads=1),
    )


@pytest.mark.parametrize(("device", "kind"), [("cpu", CpuBackend), ("reference", ReferenceBackend)])
def test_the_cache_gets_a_quarter_of_what_the_parameters_leave(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, device: str, kind: type
) -> None:
    block_bytes = kv_block_bytes(checkpoint.config, 16, "float32")
    monkeypatch.setattr(kind, "available_bytes", lambda self: 400 * block_bytes)
    _, resolved = load_and_resolve(config_of(device, kv_cache_dtype="float32"), checkpoint)
    assert resolved.num_blocks == 100
    assert resolved.config.cache.num_swap_blocks == 300 // 8
    assert resolved.weight_bytes == checkpoint.weight_bytes > 0


def test_what_is_left_is_asked_for_after_the_last_parameter(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def available_bytes(backend: CpuBackend) -> int:
        seen.append(backend._parameters.weight_bytes)
        return GIB

    monkeypatch.setattr(CpuBackend, "available_bytes", available_bytes)
    loaded, _ = load_and_resolve(config_of(), checkpoint)
    assert isinstance(loaded.backend, CpuBackend)
    assert seen == [loaded.backend._parameters.weight_bytes] and seen[0] > 0


@pytest.mark.parametrize(
    ("sizes", "param"),
    [
        ({"kv_cache_memory": 0.5}, "kv_cache_memory"),
        ({"num_gpu_blocks_override": 2**20}, "num_gpu_blocks_override"),
        ({"swap_space": 0.5, "num_gpu_blocks_override": 8}, "swap_space"),
    ],
)
def test_a_size_that_the_parameters_leave_no_room_for_is_refused(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, Any], param: str
) -> None:
    monkeypatch.setattr(CpuBackend, "available_bytes", lambda self: GIB // 4)
    with pytest.raises(ConfigError, match="of memory are free") as refused:
        load_and_resolve(config_of(**sizes), checkpoint)
    assert refused.value.param == param


def test_a_size_beyond_the_machine_is_refused_before_anything_is_loaded(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.worker.program.load_parameters", lambda *_: pytest.fail("loaded for nothing"))
    with pytest.raises(ConfigError, match="--kv-cache-memory 60000 needs"):
        load_and_resolve(config_of(kv_cache_memory=60000), checkpoint)
