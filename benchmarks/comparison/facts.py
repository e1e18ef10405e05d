"""Facts that stand beside every stored figure: machine, commit, command, date."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import octavo
from octavo import _native
from octavo.config.machine import read_machine

ROOT = Path(__file__).parents[2]


def gather(command: Sequence[str]) -> dict[str, object]:
    """The facts of now. `command` is shown with paths cut to their last part: it is read on other machines."""
    machine = read_machine()
    return {
        "machine": {
            "cpu": cpu_name(),
            "cpus": machine.num_cpus,
            "memory_gib": round(machine.available_bytes / 2**30, 1),
            "system": f"{platform.system()} {platform.machine()}",
            "isas": _native.usable_isas(),
            "load_average": [round(load, 2) for load in os.getloadavg()],
        },
        "octavo": octavo.__version__,
        "commit": commit(),
        "command": " ".join(short(argument) for argument in command),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
    }


def this_command() -> list[str]:
    """How this program was called, as a user of the project would type it."""
    script = Path(sys.argv[0]).resolve()
    shown = str(script.relative_to(ROOT)) if script.is_relative_to(ROOT) else script.name
    return ["python", shown, *sys.argv[1:]]


def short(argument: str) -> str:
    """An absolute path becomes its last part, also after "--flag=" and "NAME="."""
    head, equals, value = argument.rpartition("=")
    return head + equals + Path(value).name if value.startswith("/") else argument


def cpu_name(path: Path = Path("/proc/cpuinfo")) -> str:
    try:
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def commit() -> str:
    """Short hash of the checkout, with "+" when tracked files differ from it; "unknown" without git."""
    try:
        git = ["git", "-C", str(ROOT)]
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed.strip() else "")
