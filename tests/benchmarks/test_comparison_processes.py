"""Processes are ended on every way out; tools are bounded."""

from __future__ import annotations

import os
import sys

import pytest
from comparison.processes import PeerError, free_port, run_tool, running_server, tree_memory_mib, wait_until_ready

WAITS = [sys.executable, "-c", "import signal; signal.pause()"]


def test_a_server_is_ended_when_the_block_is_left_by_an_error() -> None:
    with pytest.raises(KeyboardInterrupt), running_server("idle", WAITS, 1) as server:
        assert server.process.poll() is None
        raise KeyboardInterrupt
    assert server.process.returncode is not None


def test_a_server_that_ends_at_once_is_reported_with_the_end_of_its_log() -> None:
    command = [sys.executable, "-c", "print('no such model'); raise SystemExit(3)"]
    expected = pytest.raises(PeerError, match=r"peer ended with status 3\nno such model")
    with expected, running_server("peer", command, free_port()) as server:
        wait_until_ready("peer", server, 30.0)


def test_a_program_that_is_not_there_is_a_peer_error() -> None:
    with pytest.raises(PeerError, match="cannot be started"), running_server("peer", ["/nowhere/server"], 1):
        pass
    with pytest.raises(PeerError, match="cannot be started"):
        run_tool("tool", ["/nowhere/tool"], 1.0)


def test_a_tool_is_bounded_and_its_failure_told() -> None:
    with pytest.raises(PeerError, match="did not end within"):
        run_tool("tool", WAITS, 0.1)
    with pytest.raises(PeerError, match=r"status 1\n.*out of luck"):
        run_tool("tool", [sys.executable, "-c", "raise SystemExit('out of luck')"], 30.0)
    assert run_tool("tool", [sys.executable, "-c", "print(input())"], 30.0, "hello")[0] == "hello\n"


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux")
def test_memory_of_this_process_is_some_mebibytes() -> None:
    memory = tree_memory_mib(os.getpid())
    assert 5 < memory["pss_mib"] <= memory["rss_mib"]
