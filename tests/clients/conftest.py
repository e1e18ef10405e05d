"""A real server with the embedded model, for clients of other makers. `make test-clients` installs them and runs this."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.served import Served

if "OCTAVO_TEST_CLIENTS" not in os.environ:  # `make test` runs without them
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def served(smollm2_gguf: Path) -> Iterator[Served]:
    started = Served(smollm2_gguf, "--kv-cache-memory", "0.125", "--max-model-len", "1024")
    yield started
    code, errors = started.stop()
    assert code == 0 and "Traceback" not in errors, errors
