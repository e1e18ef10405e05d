"""Process 1 of a container: no signal is lost, the exit code is the command's, and orphans are reaped."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.cli.pid_one import leave_process_one

UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
START = "import os, signal, sys, time; from octavo.cli.pid_one import leave_process_one; leave_process_one(); "


def can_unshare() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0


needs_namespace = pytest.mark.skipif(not can_unshare(), reason="no process namespaces here")


def run(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*UNSHARE, sys.executable, "-c", START + program], stdout=subprocess.PIPE, text=True)


def process_one(started: subprocess.Popen[str]) -> int:
    """Its process id outside of the namespace."""
    return int(Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text())


def test_elsewhere_nothing_happens() -> None:
    leave_process_one()


@needs_namespace
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGUSR1, 138)]
)
def test_a_signal_without_a_handler_ends_it(number: signal.Signals, code: int) -> None:
    # Whoever runs the tests may ignore signals, as nohup does, and children inherit that.
    started = run(f"signal.signal({number.value}, signal.SIG_DFL); print(os.getpid(), flush=True); time.sleep(60)")
    assert started.stdout is not None and int(started.stdout.readline()) > 1
    subprocess.run(["kill", f"-{number.value}", str(process_one(started))], check=True)
    started.communicate(timeout=30)
    assert started.returncode == code


@needs_namespace
@pytest.mark.parametrize(("end", "code"), [("sys.exit(0)", 0), ("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_the_exit_code_is_that_of_the_command(end: str, code: int) -> None:
    started = run(end)
    started.communicate(timeout=30)
    assert started.returncode == code


@needs_namespace
def test_orphans_are_reaped() -> None:
    started = run(
        """
reader, writer = os.pipe()
if os.fork() == 0:
    if (orphan := os.fork()) != 0:
        os.write(writer, str(orphan).encode())
    os._exit(0)
os.wait()
orphan = int(os.read(reader, 9))
while True:
    try:
        os.kill(orphan, 0)  # a process that nobody has reaped can still be found
    except ProcessLookupError:
        print("reaped", flush=True)
        break
"""
    )
    out, _ = started.communicate(timeout=30)
    assert out == "reaped\n"
