"""The checks of `octavo doctor`: what makes a start fail, or slow, and what to do about it. Each looks and changes nothing."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from octavo.config.cache import GIB
from octavo.config.engine import EngineConfig
from octavo.config.flags import environment
from octavo.config.machine import read_machine
from octavo.config.server import ServerConfig
from octavo.engine.frontend.served_model import locate_model
from octavo.errors import ConfigError, OctavoError
from octavo.loader.checkpoint import open_config
from octavo.loader.hub import default_cache_dir
from octavo.ops.registry import make_backend
from octavo.server.listener import bind, bind_unix
from octavo.server.tls import tls_context

LEAST_FILES = 1024
LEAST_SHM_BYTES = 64 * 2**20
SLOW_ISAS = ("portable", "scalar")


@dataclass(frozen=True, slots=True)
class Finding:
    """level: "ok", "warn" (it starts, but) or "fail". fix: what to do."""

    level: str
    name: str
    text: str
    fix: str = ""


def check_all(engine: EngineConfig, server: ServerConfig) -> Iterator[Finding]:
    """All findings, in the order in which a start meets them."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        lambda: _address(server),
        lambda: _tls(server),
        _files,
        _threads,
        _cpu,
        _shared_memory,
        lambda: _model(engine),
        lambda: _memory(engine),
        _gpu,
    )
    for check in checks:
        yield from check()


def _address(config: ServerConfig) -> Iterator[Finding]:
    try:
        if config.uds is not None:
            bind_unix(config.uds).close()
            os.unlink(config.uds)
            yield Finding("ok", "socket", f"{config.uds} is free")
        else:
            bind(config.host, config.port).close()
            yield Finding("ok", "port", f"{config.host}:{config.port} is free")
    except ConfigError as error:
        owner = None if config.uds is not None else port_owner(config.port)
        taken = "" if owner is None else f"; it belongs to {owner}"
        yield Finding(
            "fail",
            "port",
            error.message.partition(";")[0] + taken,
            "stop that process, or choose another --port (0: a free one)",
        )


def port_owner(port: int, proc: Path = Path("/proc")) -> str | None:
    """The process that listens on a TCP port; None where it cannot be seen."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in _lines(proc / "net" / table)[1:]:
            words = line.split()
            if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{words[9]}]")
    for folder in proc.glob("[0-9]*"):
        if inodes.intersection(_links(folder / "fd")):
            return f"{' '.join(_lines(folder / 'comm'))} (process {folder.name})"
    return None


def _tls(config: ServerConfig) -> Iterator[Finding]:
    try:
        if tls_context(config) is not None:
            yield Finding("ok", "certificate", f"{config.ssl_certfile} can be used")
    except ConfigError as error:
        yield Finding("fail", "certificate", error.message, "give a certificate and its own key, both readable")


def _files() -> Iterator[Finding]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < LEAST_FILES:
        yield Finding(
            "warn", "open files", f"at most {hard}, which is as many clients", "raise the limit (ulimit -Hn, LimitNOFILE=)"
        )
    else:
        yield Finding("ok", "open files", "no limit" if hard == resource.RLIM_INFINITY else f"up to {hard}")


def _threads() -> Iterator[Finding]:
    machine, usable = read_machine(), os.cpu_count() or 1
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most != resource.RLIM_INFINITY and most < 4 * machine.num_cpus + 32:
        yield Finding(
            "fail",
            "processes",
            f"this user may have {most} threads and processes",
            "raise the limit (ulimit -u, TasksMax=, pids.max)",
        )
    note = "" if machine.num_cpus == usable else f" (affinity or the container's quota; the machine has {usable})"
    yield Finding("ok", "CPUs", f"{machine.num_cpus} may be used{note}")
    if (value := environment().get("OMP_NUM_THREADS")) is not None:
        yield Finding("ok", "OMP_NUM_THREADS", f"is {value}; octavo does not read it, --num-threads is its own")


def _cpu() -> Iterator[Finding]:
    try:
        isa = make_backend("cpu", num_threads=1, isa="auto", dtype="auto", quantization="auto").describe()["isa"]
    except (ImportError, OctavoError) as error:
        yield Finding(
            "fail",
            "native core",
            f"cannot be loaded: {error}",
            "install octavo again for this machine (pip install --force-reinstall)",
        )
        return
    if isa in SLOW_ISAS:
        yield Finding(
            "warn",
            "CPU",
            f"kernels are {isa}: the CPU has no AVX2, or a virtual machine hides it",
            "pass the host's CPU through (qemu: -cpu host)",
        )
    else:
        yield Finding("ok", "CPU", f"kernels are {isa}")


def _shared_memory() -> Iterator[Finding]:
    """octavo itself keeps nothing there; libraries of several GPUs do."""
    try:
        size = shutil.disk_usage("/dev/shm").total
    except OSError:
        yield Finding("warn", "/dev/shm", "is not there", "mount it (docker: --shm-size=1g) if several GPUs are used")
        return
    level = "ok" if size >= LEAST_SHM_BYTES else "warn"
    yield Finding(level, "/dev/shm", f"has {size / 2**20:.0f} MiB", "" if level == "ok" else "docker: --shm-size=1g")


def _model(config: EngineConfig) -> Iterator[Finding]:
    if default_cache_dir(environment()) is None:
        yield Finding(
            "warn",
            "cache",
            "there is no home folder, so no model can be fetched",
            "set OCTAVO_CACHE, or give a file as the model",
        )
    try:
        located = locate_model(config)
        model, _ = open_config(Path(located.loading.model), config.loading.load_format)
    except OctavoError as error:
        yield Finding(
            "fail", "model", error.message, "give a folder with config.json and *.safetensors, a .gguf file, or a hub name"
        )
        return
    yield Finding(
        "ok",
        "model",
        f"{model.architecture} at {located.loading.model}, {_size_bytes(Path(located.loading.model)) / GIB:.2f} GiB",
    )


def _memory(config: EngineConfig) -> Iterator[Finding]:
    machine = read_machine()
    try:
        weights = _size_bytes(Path(locate_model(config).loading.model))
    except OctavoError:
        return  # the check of the model says it
    asked_gib = config.cache.kv_cache_memory
    cache = int(asked_gib * GIB) if isinstance(asked_gib, (int, float)) else machine.available_bytes // 4
    needed, available = weights + cache, machine.available_bytes
    text = f"weights {weights / GIB:.2f} GiB and KV cache {cache / GIB:.2f} GiB; {available / GIB:.2f} GiB are free"
    if needed > available:
        yield Finding("fail", "memory", text, "lower --kv-cache-memory, take a smaller model, or raise the container's limit")
    elif needed > 0.9 * available:
        yield Finding("warn", "memory", text, "little is left for prompts: lower --kv-cache-memory")
    else:
        yield Finding("ok", "memory", text)


def _gpu() -> Iterator[Finding]:
    """What the driver says, where there is one."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    version, count = ctypes.c_int(), ctypes.c_int()
    status = cuda.cuInit(0) or cuda.cuDriverGetVersion(ctypes.byref(version)) or cuda.cuDeviceGetCount(ctypes.byref(count))
    visible = environment().get("CUDA_VISIBLE_DEVICES")
    if status:
        yield Finding(
            "warn", "CUDA", f"the driver answers with error {status}", "nvidia-smi says why; a container needs --gpus all"
        )
        return
    note = "" if visible is None else f", CUDA_VISIBLE_DEVICES={visible}"
    yield Finding("ok", "CUDA", f"driver for {version.value // 1000}.{version.value % 1000 // 10}, {count.value} devices{note}")
    try:
        nccl, number = ctypes.CDLL("libnccl.so.2"), ctypes.c_int()
    except OSError:
        return
    if nccl.ncclGetVersion(ctypes.byref(number)) == 0:
        yield Finding("ok", "NCCL", f"version {number.value // 10000}.{number.value % 10000 // 100}.{number.value % 100}")


def _size_bytes(path: Path) -> int:
    files = [path] if path.is_file() else [*path.glob("*.safetensors"), *path.glob("*.gguf")]
    return sum(file.stat().st_size for file in files)


def _links(folder: Path) -> Iterator[str]:
    """Where the links of a folder lead; those that vanish meanwhile, or are another user's, are left out."""
    with suppress(OSError):
        for link in folder.iterdir():
            with suppress(OSError):
                yield os.readlink(link)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
