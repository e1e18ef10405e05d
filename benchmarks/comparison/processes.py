"""Processes that a comparison starts: bounded, on loopback, stopped on every way out; and the memory they hold."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

STOP_TIMEOUT_S = 10.0
POLL_S = 0.02
LOG_TAIL_BYTES = 2000
LOG_TAIL_LINES = 3


class PeerError(Exception):
    """A contestant could not be started, did not answer in time, or said something else than expected."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that this process started. start_s is on time.perf_counter's clock, taken just before the start."""

    url: str
    process: subprocess.Popen[bytes]
    start_s: float


def free_port() -> int:
    """A TCP port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running_server(name: str, command: Sequence[str], port: int) -> Iterator[RunningServer]:
    """Start a server and stop it on leaving, whatever happens. It need not be ready yet: see `wait_until_ready`.

    The server leads a process group of its own, so that children it leaves behind can be ended with it and nothing else.
    """
    with tempfile.TemporaryFile() as log:
        start_s = time.perf_counter()
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            raise PeerError(f"{name}: {command[0]} cannot be started: {error.strerror}") from None
        try:
            yield RunningServer(f"http://127.0.0.1:{port}", process, start_s)
        except PeerError as error:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            raise PeerError(f"{error}\n{_last_lines(log.read().decode('utf-8', 'replace'))}") from None
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, a bounded wait, then SIGKILL to the group that the process leads."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until_ready(name: str, server: RunningServer, timeout_s: float) -> None:
    """Return once GET /health answers 200. Raises PeerError if the server ends or the time is up."""
    deadline = time.monotonic() + timeout_s
    while not answers_health(server.url):
        check_alive(name, server)
        if time.monotonic() > deadline:
            raise PeerError(f"{name} was not ready after {timeout_s:.0f} s")
        time.sleep(POLL_S)


def check_alive(name: str, server: RunningServer) -> None:
    code = server.process.poll()
    if code is not None:
        raise PeerError(f"{name} ended with status {code}")


def answers_health(url: str) -> bool:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=1.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def run_tool(name: str, command: Sequence[str], timeout_s: float, stdin: str = "") -> tuple[str, str]:
    """(stdout, stderr) of a command that ends by itself. Raises PeerError for a bad status or when the time is up."""
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s)
    except OSError as error:
        raise PeerError(f"{name}: {command[0]} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise PeerError(f"{name} did not end within {timeout_s:.0f} s") from None
    if done.returncode != 0:
        raise PeerError(f"{name} ended with status {done.returncode}\n{_last_lines(done.stderr)}")
    return done.stdout, done.stderr


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind like Ctrl-C, so that servers are stopped then, too."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tree_memory_mib(pid: int) -> dict[str, float]:
    """MiB held by a process and its descendants: "rss_mib" (shared pages counted in each) and "pss_mib" (counted once).

    Empty where /proc does not tell (not Linux).
    """
    totals = {"Rss": 0, "Pss": 0}
    for member in _tree(pid):
        with suppress(OSError):
            for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines():
                field, _, rest = line.partition(":")
                if field in totals:
                    totals[field] += int(rest.split()[0])
    if not totals["Rss"]:
        return {}
    return {"rss_mib": totals["Rss"] / 1024, "pss_mib": totals["Pss"] / 1024}


def _tree(pid: int) -> list[int]:
    """pid and its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            # The command in parentheses may hold spaces; the parent is the second field after it.
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def _last_lines(text: str) -> str:
    """The end of a log: where a program says why it gave up."""
    return "\n".join([line for line in text.splitlines() if line.strip()][-LOG_TAIL_LINES:])
