"""The models of the gate: each real one cut to its first layers, which compute as the whole one does, in a sixth of the time.

What only depth could show is in test_bytes_whole_model.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import first_layers


@pytest.fixture(scope="session")
def smollm2_start(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M, 3 of 30 layers."""
    return first_layers.write(smollm2_gguf, tmp_path_factory.mktemp("smollm2") / "start.gguf", 3)


@pytest.fixture(scope="session")
def gemma3_start(gemma3_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gemma 3 270M, 6 of 18 layers: the sixth is the first that sees everything."""
    return first_layers.write(gemma3_gguf, tmp_path_factory.mktemp("gemma3") / "start.gguf", 6)
