"""Served: a real `octavo serve` process, as a user starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

SRC = Path(__file__).parents[1] / "src"


class Served:
    """The process, the line it prints when it is ready, its URL. python: the interpreter that runs it."""

    def __init__(self, model: Path, *arguments: str, python: str = sys.executable) -> None:
        command = [python, "-m", "octavo", "serve", str(model), "--port", "0", "--served-model-name", "m", *arguments]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline()
        self.url = next((word for word in self.ready_line.split() if word.startswith("http")), "").removesuffix("/v1")

    def stop(self) -> tuple[int, str]:
        """SIGTERM; (exit code, stderr)."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        """(exit code, stderr) of a server that was told to stop."""
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors

    @property
    def core_pid(self) -> int:
        """Process id of the engine core, the one child that runs its module."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        (core,) = [pid for pid in children if b"octavo.engine.core.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return int(core)

    def metrics(self) -> dict[str, float]:
        """Name without prefix and labels -> sum over the labels; no buckets."""
        values: dict[str, float] = {}
        for line in httpx.get(f"{self.url}/metrics", timeout=60).text.split("\n"):  # a label may hold other line ends
            if line.startswith("octavo:") and "_bucket" not in line:
                name = line.removeprefix("octavo:").partition("{")[0]
                values[name] = values.get(name, 0.0) + float(line.rpartition(" ")[2])
        return values

    def is_idle(self) -> bool:
        """Nothing runs, nothing waits, no KV block is in use."""
        values = self.metrics()
        return not any(values[name] for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"))
