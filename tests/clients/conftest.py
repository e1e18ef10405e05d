"""A real server with the embedded model, for clients of other makers. `make test-clients` installs them and runs this.

The clients have an environment of their own, whose packages octavo does not see: OCTAVO_PYTHON runs the server.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.served import Served

if "OCTAVO_PYTHON" not in os.environ:  # `make test` runs without them
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def octavo_python() -> str:
    return os.environ["OCTAVO_PYTHON"]


@pytest.fixture(scope="session")
def model_path(octavo_python: str) -> Path:
    """SmolLM2-135M-Instruct."""
    pulled = subprocess.run([octavo_python, "-m", "octavo", "pull"], capture_output=True, text=True, check=True)
    return Path(pulled.stdout.split()[-1])


@pytest.fixture(scope="session")
def served(model_path: Path, octavo_python: str) -> Iterator[Served]:
    options = ("--kv-cache-memory", "0.125", "--max-model-len", "1024", "--enable-tokenizer-info-endpoint")
    started = Served(model_path, *options, python=octavo_python)
    yield started
    code, errors = started.stop()
    assert code == 0 and "Traceback" not in errors, errors


@pytest.fixture(scope="session")
def base_url(served: Served) -> str:
    return f"{served.url}/v1"
