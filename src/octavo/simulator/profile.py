"""Profile: one machine with one model in figures, kept as a JSON file."""

from __future__ import annotations

import math
import platform
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from octavo.errors import ConfigError
from octavo.simulator.cost_model import CostModel

PROFILE_VERSION = 1
QUIET_ERROR = 0.1
"""A median error above this comes from other work on the machine, not from the form of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """cost model, and what else a simulation must know of the model.

    kv_bytes_per_token  keys and values of one token over all layers; turns a KV budget in GiB into blocks
    max_position        the model's context
    median_error, p90_error   relative errors of the fit over num_samples measured steps
    """

    name: str
    cost: CostModel
    kv_bytes_per_token: int
    max_position: int
    num_samples: int = 0
    median_error: float = 0.0
    p90_error: float = 0.0

    def describe(self) -> str:
        """One line per fact, times in readable units; a note where the fit says that the machine was busy."""
        cost = self.cost
        busy = ["note: the steps scatter widely; calibrate again when the machine does nothing else"]
        return "\n".join(
            [
                f"profile  {self.name}",
                f"step     {cost.step_s * 1e3:.3f} ms, and {cost.small_token_s * 1e3:.3f} ms for each of the first tokens",
                f"prefill  {cost.prefill_token_s * 1e6:.1f} us per token, {cost.prefill_pair_s * 1e9:.2f} ns per attended pair",
                f"decode   {cost.decode_seq_s * 1e6:.1f} us per sequence, {cost.context_token_s * 1e9:.1f} ns per key read",
                f"fit      median error {self.median_error:.1%}, p90 {self.p90_error:.1%} over {self.num_samples} steps",
                *(busy if self.median_error > QUIET_ERROR else []),
            ]
        )


DEFAULT_PROFILE = Profile(
    name="built in: round figures for SmolLM2-135M-Instruct, 4 bits, on 2 x86 cores; --calibrate measures yours",
    cost=CostModel(
        step_s=5e-3,
        small_token_s=0.5e-3,
        prefill_token_s=600e-6,
        prefill_pair_s=300e-9,
        decode_seq_s=700e-6,
        context_token_s=1e-6,
    ),
    kv_bytes_per_token=46080,
    max_position=8192,
)
"""Used without --profile: round figures, right within a factor of two or so. Enough to compare settings and fleets with each
other; for figures of a machine, calibrate on it."""


def machine_name() -> str:
    """The processor's name, or the architecture where it has none."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.machine()


def default_profile_path(cache_dir: Path, profile: Profile) -> Path:
    """Where a calibration is kept: one file per machine and model."""
    return cache_dir / "profiles" / (re.sub(r"[^A-Za-z0-9.]+", "-", profile.name).strip("-").lower() + ".json")


def save_profile(path: Path, profile: Profile) -> None:
    """Raises ConfigError when the file cannot be written."""
    raw = {"version": PROFILE_VERSION, **asdict(profile)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(raw), indent=2) + b"\n")
    except OSError as error:
        raise ConfigError(f"the profile cannot be written to {path}: {error.strerror}", param="profile") from None


def load_profile(path: Path) -> Profile:
    """Raises ConfigError naming the file and the key for anything that is not a profile."""
    try:
        raw = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"--profile {path}: {error.strerror}", param="profile") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"--profile {path} is not JSON: {error}", param="profile") from None
    if not isinstance(raw, dict) or raw.get("version") != PROFILE_VERSION:
        raise ConfigError(
            f"--profile {path} is no profile of version {PROFILE_VERSION}; run octavo simulate --calibrate", param="profile"
        )
    cost = raw.get("cost")
    if not isinstance(cost, dict):
        raise ConfigError(f"--profile {path}: cost is missing", param="profile")
    terms = {field.name: _number(path, f"cost.{field.name}", cost.get(field.name), 0.0) for field in fields(CostModel)}
    if sum(terms.values()) <= 0.0:
        raise ConfigError(f"--profile {path}: all terms of cost are zero, so that no step would take any time", param="profile")
    return Profile(
        name=str(raw.get("name", path.name)),
        cost=CostModel(**terms),
        kv_bytes_per_token=int(_number(path, "kv_bytes_per_token", raw.get("kv_bytes_per_token"), 1.0)),
        max_position=int(_number(path, "max_position", raw.get("max_position"), 1.0)),
        num_samples=int(_number(path, "num_samples", raw.get("num_samples", 0), 0.0)),
        median_error=_number(path, "median_error", raw.get("median_error", 0.0), 0.0),
        p90_error=_number(path, "p90_error", raw.get("p90_error", 0.0), 0.0),
    )


def _number(path: Path, key: str, value: Any, low: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value < low:
        raise ConfigError(f"--profile {path}: {key} is {value!r}; it must be a number of {low:g} or more", param="profile")
    return float(value)
