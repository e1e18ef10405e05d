"""octavo doctor finds what keeps a server from starting, and says what to do."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from octavo.cli.doctor_checks import port_owner
from octavo.cli.main import run

SMALL = ["--kv-cache-memory", "0.01"]


def test_a_server_that_would_start_is_told_so(smollm2_gguf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", str(smollm2_gguf), "--port", "0", *SMALL]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split(":")[0].split(maxsplit=1)[1] for line in lines if line.startswith(("ok", "warn"))]
    assert {"port", "open files", "CPUs", "CPU", "model", "memory"} <= set(names)
    assert lines[-1] == "nothing keeps the server from starting"


def test_a_taken_port_is_told_with_its_owner(smollm2_gguf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"(process {os.getpid()})" in (port_owner(port) or "")
        assert run(["doctor", str(smollm2_gguf), "--port", str(port), *SMALL]) == 1
    out = capsys.readouterr().out
    assert f"process {os.getpid()}" in out and "choose another --port" in out and out.endswith("a start would fail\n")
    assert port_owner(port) is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["/no/such/model", *SMALL], "fail  model: "),
        (["--kv-cache-memory", "60000"], "fail  memory: "),
        (["--ssl-certfile", "/no/such/file", *SMALL], "fail  certificate: "),
        (["--uds", "/no/such/folder/socket", *SMALL], "fail  port: "),
    ],
)
def test_each_fault_has_its_line_and_its_way_out(
    smollm2_gguf: Path, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = [] if arguments[0].startswith("/") else [str(smollm2_gguf)]
    assert run(["doctor", *model, *arguments, "--port", "0"]) == 1
    lines = capsys.readouterr().out.splitlines()
    (index,) = [index for index, line in enumerate(lines) if line.startswith(text)]
    assert lines[index + 1].startswith("      fix: ")
