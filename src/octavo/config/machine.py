"""Machine: what this process may use of the computer, read once at the edge.

Containers limit CPUs and memory through cgroups, which neither os.cpu_count() nor /proc/meminfo know of; a thread pool larger
than the quota is throttled in bursts, a KV cache larger than the limit is killed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FALLBACK_MEMORY = 4 * 2**30
_ADDRESS_SLACK = 2**28
"""Of the address space (ulimit -v) for stacks and arenas of threads, which take much more of it than of the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What one process may use.

    num_cpus         CPUs it may keep busy, at least 1
    available_bytes  memory it can still allocate without swapping
    total_bytes      all the memory it could ever have: the machine's, or the limit of its cgroup
    """

    num_cpus: int
    available_bytes: int
    total_bytes: int


def read_machine(root: Path = Path("/")) -> Machine:
    """Read affinity, cgroup v1/v2 limits and free memory of this process; `root` holds proc/ and sys/ (tests bring others)."""
    available_bytes = min(_available_memory(root), _available_addresses(root))
    return Machine(num_cpus=_usable_cpus(root), available_bytes=available_bytes, total_bytes=_total_memory(root))


def _usable_cpus(root: Path) -> int:
    has_affinity = hasattr(os, "sched_getaffinity")
    cpus = float(len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1)
    for folder in _cgroup_folders(root, "cpu"):
        quota, period = _cpu_quota(folder)
        if quota > 0 and period > 0:
            cpus = min(cpus, quota / period)
    return max(1, math.ceil(cpus))


def _cpu_quota(folder: Path) -> tuple[int, int]:
    """(quota, period) in microseconds of one cgroup, v2 or v1; (0, 0) when unlimited or unreadable."""
    parts = _read_text(folder / "cpu.max").split()
    if len(parts) == 2:
        return _to_int(parts[0]), _to_int(parts[1])
    return _read_int(folder / "cpu.cfs_quota_us"), _read_int(folder / "cpu.cfs_period_us")


def _available_memory(root: Path) -> int:
    available = _meminfo_available(root)
    for folder, limit in _memory_limits(root):
        used = _read_int(folder / "memory.current") or _read_int(folder / "memory.usage_in_bytes")
        # Page cache counts as used but is given back on demand; mapped model files would otherwise look like a full machine.
        reclaimable = _stat_value(folder / "memory.stat", ("total_inactive_file", "inactive_file"))
        available = min(available, max(0, limit - max(0, used - reclaimable)))
    return available


def _available_addresses(root: Path) -> int:
    """Bytes of address space that are left to this process; a huge number without a limit."""
    for line in _read_text(root / "proc/self/limits").splitlines():
        if line.startswith("Max address space"):
            limit = _to_int(line.split()[3])
            pages = _read_text(root / "proc/self/statm").split()
            if limit and pages:
                return max(0, limit - _to_int(pages[0]) * os.sysconf("SC_PAGE_SIZE") - _ADDRESS_SLACK)
    return 2**62


def _total_memory(root: Path) -> int:
    total = _meminfo(root, "MemTotal:") or _physical_memory()
    return min([total, *(limit for _, limit in _memory_limits(root))])


def _memory_limits(root: Path) -> Iterator[tuple[Path, int]]:
    """Every cgroup folder with a limit in bytes that binds this process."""
    for folder in _cgroup_folders(root, "memory"):
        limit = _read_int(folder / "memory.max") or _read_int(folder / "memory.limit_in_bytes")
        # cgroup v1 says "unlimited" with a number near 2**63.
        if 0 < limit < 2**60:
            yield folder, limit


def _meminfo_available(root: Path) -> int:
    # No /proc (macOS, BSD): half of the physical memory is a cautious guess of what is free.
    return _meminfo(root, "MemAvailable:") or _physical_memory() // 2


def _meminfo(root: Path, key: str) -> int:
    """A figure of /proc/meminfo in bytes; 0 where there is none."""
    for line in _read_text(root / "proc/meminfo").splitlines():
        if line.startswith(key):
            return _to_int(line.split()[1]) * 1024
    return 0


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 2 * _FALLBACK_MEMORY


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Every cgroup folder whose limit binds this process: its own and all ancestors, v2 and v1.

    Inside a container the path in /proc/self/cgroup may not exist below the mounted root; then the root itself is ours.
    """
    base = root / "sys/fs/cgroup"
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        hierarchy, controllers, path = parts
        if hierarchy == "0" and not controllers:
            top = base
        elif controller in controllers.split(","):
            top = base / controller
        else:
            continue
        relative = Path(path.lstrip("/"))
        if ".." in relative.parts:
            relative = Path()
        for folder in (top / relative, *(top / parent for parent in relative.parents)):
            if folder.is_dir():
                yield folder


def _stat_value(path: Path, keys: tuple[str, ...]) -> int:
    values = dict(line.split(maxsplit=1) for line in _read_text(path).splitlines() if " " in line)
    return next((_to_int(values[key]) for key in keys if key in values), 0)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _read_int(path: Path) -> int:
    return _to_int(_read_text(path))


def _to_int(text: str) -> int:
    """The number, or 0 for "max", -1 (unlimited in v1) and anything unreadable."""
    try:
        return max(0, int(text))
    except ValueError:
        return 0
