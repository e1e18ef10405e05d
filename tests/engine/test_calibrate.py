"""Calibration runs a real engine: a tiny one of random weights."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from tests.fakes import write_model

from octavo.engine.args import EngineArgs
from octavo.simulator.calibrate import WAVES, calibrate


def test_calibrate_measures_a_tiny_engine(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    config = EngineArgs(model=str(folder), load_format="dummy", kv_cache_memory=0.05, num_threads=1).create_engine_config()
    heard: list[tuple[int, int]] = []
    profile = calibrate(config, lambda done, total: heard.append((done, total)))
    assert sum(asdict(profile.cost).values()) > 0 and min(asdict(profile.cost).values()) >= 0
    assert profile.max_position == 256 and profile.kv_bytes_per_token == 2 * 2 * 1 * 16 * 4
    assert profile.name.startswith("tiny on ") and "1 threads" in profile.name
    # Waves beyond the model's context of 256 are left out.
    num_waves = sum(wave.num_prompt + wave.num_output <= 256 for wave in WAVES)
    assert heard == [(index, num_waves) for index in range(num_waves + 1)] and profile.num_samples > 100
