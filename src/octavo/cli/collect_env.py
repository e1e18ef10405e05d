"""octavo collect-env: what a bug report needs."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from octavo import __version__
from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.config.flags import environment
from octavo.config.machine import read_machine
from octavo.errors import OctavoError
from octavo.loader.hub import default_cache_dir
from octavo.ops.registry import make_backend

PACKAGES = (
    "numpy",
    "ml-dtypes",
    "safetensors",
    "tokenizers",
    "jinja2",
    "msgspec",
    "fastapi",
    "starlette",
    "pydantic",
    "uvicorn",
    "uvloop",
    "httptools",
    "prometheus-client",
    "huggingface-hub",
    "click",
    "rich",
)
CPU_FLAGS = (
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "amx_int8",
    "asimd",
    "i8mm",
)


@click.command("collect-env", cls=SectionedCommand, context_settings=CONTEXT_SETTINGS)
def collect_env() -> None:
    """Print versions, CPU, memory and limits, for a bug report. Of the environment only the names of OCTAVO_ variables."""
    for name, value in facts():
        print(f"{name + ':':<22}{value}")


def facts() -> Iterator[tuple[str, str]]:
    """(name, value) pairs."""
    machine = read_machine()
    cpu = _proc_fields(Path("/proc/cpuinfo"))
    flags = set(cpu.get("flags", cpu.get("Features", "")).split())
    yield "octavo", __version__
    yield "python", f"{sys.version.split()[0]} ({platform.python_implementation()}) {sys.executable}"
    yield "platform", platform.platform()
    yield "cpu", cpu.get("model name", platform.processor() or platform.machine())
    yield "cpu flags", " ".join(flag for flag in CPU_FLAGS if flag in flags) or "unknown"
    yield "isa chosen", _isa()
    yield "threads", f"{machine.num_cpus} of {os.cpu_count()} CPUs usable (affinity and cgroup limit)"
    yield "memory", f"{machine.available_bytes / 2**30:.1f} GiB available of {_total_memory()}"
    yield from _cgroup_limits()
    yield "cache", str(default_cache_dir(environment()) or "none: there is no home folder; OCTAVO_CACHE names one")
    yield "variables", " ".join(sorted(name for name in environment() if name.startswith("OCTAVO_"))) or "none"
    for package in PACKAGES:
        yield package, _version(package)


def _isa() -> str:
    """The kernel variant that `--isa auto` takes on this machine."""
    try:
        return make_backend("cpu", num_threads=1, isa="auto", dtype="auto", quantization="auto").describe()["isa"]
    except (ImportError, OctavoError) as error:
        return f"none: the native extension cannot be loaded ({error})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _proc_fields(path: Path) -> dict[str, str]:
    """The first value of each `name : value` line; empty where the file does not exist."""
    values: dict[str, str] = {}
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return values
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            values.setdefault(name.strip(), value.strip())
    return values


def _total_memory() -> str:
    match = re.match(r"(\d+) kB", _proc_fields(Path("/proc/meminfo")).get("MemTotal", ""))
    return f"{int(match[1]) / 2**20:.1f} GiB" if match else "unknown"


def _cgroup_limits() -> Iterator[tuple[str, str]]:
    for name, file in (("cgroup cpu.max", "cpu.max"), ("cgroup memory.max", "memory.max")):
        try:
            yield name, Path("/sys/fs/cgroup", file).read_text().strip()
        except OSError:
            continue
