"""Profiles survive the disk; damaged ones are named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import ConfigError
from octavo.simulator.profile import DEFAULT_PROFILE, default_profile_path, load_profile, machine_name, save_profile


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = default_profile_path(tmp_path, DEFAULT_PROFILE)
    save_profile(path, DEFAULT_PROFILE)
    assert load_profile(path) == DEFAULT_PROFILE
    assert "/" not in path.name and machine_name()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"version": 2}, "no profile of version 1"),
        ({"cost": None}, "cost is missing"),
        ({"cost": {"step_s": -1}}, "cost.step_s is -1"),
        ({"kv_bytes_per_token": "x"}, "kv_bytes_per_token is 'x'"),
        ({"max_position": 0}, "max_position is 0"),
        ({"median_error": True}, "median_error is True"),
    ],
)
def test_a_wrong_profile_is_named_with_its_key(tmp_path: Path, change: dict[str, Any], part: str) -> None:
    path = tmp_path / "p.json"
    save_profile(path, DEFAULT_PROFILE)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError) as error:
        load_profile(path)
    assert part in error.value.message and str(path) in error.value.message


def test_a_profile_in_which_nothing_takes_time_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    save_profile(path, DEFAULT_PROFILE)
    raw = json.loads(path.read_text())
    raw["cost"] = dict.fromkeys(raw["cost"], 0)
    path.write_text(json.dumps(raw))
    with pytest.raises(ConfigError, match="all terms of cost are zero"):
        load_profile(path)


def test_files_that_are_no_json_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("nothing")
    for name, part in (("x.json", "is not JSON"), ("y.json", "No such file"), ("", "directory")):
        with pytest.raises(ConfigError, match=part):
            load_profile(tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be written"):
        save_profile(tmp_path / "x.json" / "p.json", DEFAULT_PROFILE)


def test_describe_states_the_fit() -> None:
    assert "median error" in DEFAULT_PROFILE.describe() and "note:" not in DEFAULT_PROFILE.describe()
    assert "calibrate again" in replace(DEFAULT_PROFILE, median_error=0.3).describe()
