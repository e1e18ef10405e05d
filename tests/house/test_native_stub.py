"""The checked-in stub of the native core is what its bindings say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STUB = Path(__file__).parents[2] / "src" / "octavo" / "_native.pyi"


def test_native_stub_matches_the_bindings(tmp_path: Path) -> None:
    fresh = tmp_path / "_native.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "octavo._native", "-o", str(fresh)]
    subprocess.run(command, check=True, capture_output=True)
    assert fresh.read_text() == STUB.read_text(), f"regenerate it: {' '.join(command[1:-1])} {STUB.name}"
