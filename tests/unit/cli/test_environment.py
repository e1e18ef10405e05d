"""The command in odd environments: a working folder full of modules, blocked signals, early Ctrl-C, no memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from octavo.cli import main as cli
from octavo.config.machine import read_machine


@pytest.mark.parametrize("name", ["random", "socket", "click", "tokenizers", "uuid"])
def test_modules_in_the_working_folder_are_not_ours(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    command = [sys.executable, "-m", "octavo", "collect-env"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def waiting(before: str) -> subprocess.Popen[str]:
    """A command that waits for its standard input, started after `before`."""
    program = f"import os, signal, sys; {before}; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = [sys.executable, "-c", program, "-m", "octavo", "complete", "no-such-model"]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while "select." not in Path(f"/proc/{started.pid}/maps").read_text():  # octavo.streams is being imported
        assert started.poll() is None
    return started


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_that_the_parent_has_blocked_are_heard(number: signal.Signals) -> None:
    started = waiting(f"signal.pthread_sigmask(signal.SIG_BLOCK, [{number.value}])")
    started.send_signal(number)
    _, errors = started.communicate(timeout=60)
    assert started.returncode in (-number.value, 130) and "Traceback" not in errors


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(click.Group, "main", fail)
    assert cli.run(["complete"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("octavo: error: not enough memory (std::bad_alloc)") and errors.count("\n") == 1


LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max address space         {}       unlimited  bytes
"""


@pytest.mark.parametrize(("limit", "share"), [("2147483648", True), ("100000", True), ("unlimited", False)])
def test_the_address_space_bounds_the_memory(limit: str, share: bool, tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n")
    (tmp_path / "proc/self/limits").write_text(LIMITS.format(limit))
    (tmp_path / "proc/self/statm").write_text("1000 1 1 1 0 1 0\n")
    expected = 8_000_000 * 1024
    if share:
        expected = max(0, int(limit) - 1000 * os.sysconf("SC_PAGE_SIZE") - 2**28)
    assert read_machine(tmp_path).available_bytes == expected
