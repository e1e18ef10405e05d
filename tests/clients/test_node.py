"""openai for Node: an answer goes back in, twice, whole and streamed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.served import Served

SCRIPT = Path(__file__).parent / "round_trip.mjs"
MODULES = os.environ["OCTAVO_NODE"]
"""Folder in which `npm install openai` was run."""

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="this machine has no node and npm (18 or newer)")


def test_an_answer_goes_back_in_twice(served: Served, tmp_path: Path) -> None:
    shutil.copy(SCRIPT, tmp_path)
    (tmp_path / "node_modules").symlink_to(Path(MODULES).resolve() / "node_modules")
    command = ["node", str(tmp_path / SCRIPT.name), f"{served.url}/v1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["whole 2", "stream 2"]
