"""read_machine: limits of containers are honoured, wherever they are written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from octavo.config.machine import read_machine


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n"}


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


def test_without_cgroups_affinity_and_meminfo_count(tmp_path: Path) -> None:
    machine = read_machine(write(tmp_path, MEMINFO))
    assert (machine.num_cpus, machine.available_bytes) == (8, 8_000_000 * 1024)
    assert machine.total_bytes == 16_000_000 * 1024


def test_cgroup_v2_limits_of_a_parent_bind(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pod/container\n",
        "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/pod/container/cpu.max": "max 100000\n",
        "sys/fs/cgroup/pod/container/memory.max": "1000000\n",
        "sys/fs/cgroup/pod/container/memory.current": "700000\n",
        "sys/fs/cgroup/pod/container/memory.stat": "anon 1\ninactive_file 200000\n",
    }
    machine = read_machine(write(tmp_path, {**MEMINFO, **files}))
    assert (machine.num_cpus, machine.available_bytes, machine.total_bytes) == (2, 1000000 - 500000, 1000000)


def test_cgroup_v1_limits_bind(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "500000\n",
    }
    machine = read_machine(write(tmp_path, {**MEMINFO, **files}))
    assert (machine.num_cpus, machine.available_bytes) == (1, 1500000)


def test_unlimited_and_unreadable_values_do_not_bind(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/../../x\nnonsense\n",
        "sys/fs/cgroup/cpu.max": "max 100000\n",
        "sys/fs/cgroup/memory.max": "max\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    machine = read_machine(write(tmp_path, {**MEMINFO, **files}))
    assert (machine.num_cpus, machine.available_bytes) == (8, 8_000_000 * 1024)


def test_this_machine_has_something() -> None:
    machine = read_machine()
    assert machine.num_cpus >= 1 and machine.available_bytes > 0
