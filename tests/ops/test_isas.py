"""Kernel variants: every one built has a flag value, only those the CPU has are offered, best first, and others are refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.ops.harness import ISAS

from octavo.config.backend import BackendConfig
from octavo.errors import ConfigError
from octavo.ops.cpu.backend import CpuBackend

UNITS = {unit.stem for unit in (Path(__file__).parents[2] / "native" / "isa").glob("*.cpp")}
BEST_FIRST = ("avx512", "avxvnni", "avx2", "neon", "portable")
CPU_FLAGS = {"avx512": "avx512_vnni", "avxvnni": "avx_vnni", "avx2": "avx2", "neon": "asimd"}  # as Linux calls them


def test_every_unit_is_a_choice_of_the_flag() -> None:
    (isa,) = (field for field in dataclasses.fields(BackendConfig) if field.name == "isa")
    assert set(isa.metadata["choices"]) == UNITS | {"auto"}
    assert set(BEST_FIRST) == UNITS


def test_variants_are_offered_best_first() -> None:
    assert list(ISAS) == [name for name in BEST_FIRST if name in ISAS]
    assert ISAS[-1] == "portable"


@pytest.mark.parametrize("isa", [name for name in ISAS if name != "portable"])
def test_no_variant_is_offered_that_the_cpu_lacks(isa: str) -> None:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        pytest.skip("no /proc/cpuinfo to compare with")
    assert CPU_FLAGS[isa] in cpuinfo.read_text().split()


@pytest.mark.parametrize("isa", sorted(UNITS - set(ISAS)))
def test_a_variant_that_the_cpu_lacks_is_refused_with_the_ones_it_has(isa: str) -> None:
    with pytest.raises(ConfigError, match=f"isa {isa} cannot run on this CPU; usable here: {', '.join(ISAS)}") as caught:
        CpuBackend(1, isa=isa)
    assert caught.value.param == "isa"
