"""LogitsRunner on the reference backend: slices change nothing, and a worker's prompt logprobs say the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.tiny_models import prompt
from tests.worker_driver import Driver, Request, make_worker, tiny_checkpoint

from octavo.config.backend import BackendConfig
from octavo.config.engine import EngineConfig
from octavo.config.loading import LoadingConfig
from octavo.config.scheduler import SchedulerConfig
from octavo.loader.checkpoint import Checkpoint
from octavo.quantize.evaluate import perplexity
from octavo.quantize.logits import LogitsRunner, slice_rows
from octavo.quantize.windows import Window
from octavo.sampling_params import SamplingParams

CONFIG = EngineConfig(
    loading=LoadingConfig(dtype="float32"),
    scheduler=SchedulerConfig(chunked_prefill_size=7),
    backend=BackendConfig(device="reference", num_threads=1),
)
IDS = prompt("evaluation", 40)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), "llama-gqa")


def losses(config: EngineConfig, checkpoint: Checkpoint, *windows: Window) -> list[float]:
    runner = LogitsRunner(config, checkpoint, context=64)
    values: list[float] = perplexity(runner, windows, lambda num_scored, value: None).losses.tolist()
    return values


def test_slices_change_no_bit(checkpoint: Checkpoint) -> None:
    whole = replace(CONFIG, scheduler=SchedulerConfig(chunked_prefill_size=64))
    assert losses(CONFIG, checkpoint, Window(IDS, 1)) == losses(whole, checkpoint, Window(IDS, 1))


@pytest.mark.parametrize("first_scored", [2, 7, 8, 15, 39])
def test_a_later_start_scores_the_same_tokens_alike(checkpoint: Checkpoint, first_scored: int) -> None:
    everything = losses(CONFIG, checkpoint, Window(IDS, 1))
    assert losses(CONFIG, checkpoint, Window(IDS, first_scored)) == everything[first_scored - 1 :]


def test_windows_leave_nothing_behind(checkpoint: Checkpoint) -> None:
    other = Window(prompt("other", 50), 1)
    assert losses(CONFIG, checkpoint, other, Window(IDS, 1))[-39:] == losses(CONFIG, checkpoint, Window(IDS, 1))


def test_losses_are_the_prompt_logprobs_of_a_worker(checkpoint: Checkpoint) -> None:
    driver = Driver(make_worker(checkpoint), [Request(IDS, SamplingParams(prompt_logprobs=0, max_tokens=1))])
    driver.run(1)
    entries = driver.requests[0].prompt_logprobs
    expected = [-entries[position].logprob for position in range(1, len(IDS))]
    np.testing.assert_allclose(losses(CONFIG, checkpoint, Window(IDS, 1)), expected, rtol=1e-5)


def test_a_large_vocabulary_gets_small_slices() -> None:
    assert slice_rows(262_144, 256) == 64
    assert slice_rows(49_152, 256) == 256
    assert slice_rows(2**30, 256) == 1


def test_a_folder_of_int4_runs_on_the_reference_backend(checkpoint: Checkpoint, tmp_path: Path) -> None:
    int4 = replace(CONFIG, loading=LoadingConfig(quantization="int4"))
    rounded, exact = losses(int4, checkpoint, Window(IDS, 1)), losses(CONFIG, checkpoint, Window(IDS, 1))
    assert rounded != exact
    np.testing.assert_allclose(rounded, exact, atol=1.0)
