"""What all rooms share: the two real models, fetched into octavo's own cache when missing, and how properties are searched."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from octavo.loader.hub import default_cache_dir, resolve_model

# A run says the same each time it is made. To look for new counterexamples: pytest --hypothesis-profile=explore
settings.register_profile("explore", deadline=None)
settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same")


@pytest.fixture(autouse=True)
def same_logging() -> Iterator[None]:
    """A command sets up logging for its process; the next test begins without that, whichever it is."""
    logger = logging.getLogger("octavo")
    level, propagate, handlers = logger.level, logger.propagate, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.propagate, logger.handlers = propagate, handlers


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: the embedded default model (Llama architecture)."""
    return resolve_model("smollm2-135m-instruct", cache_dir=default_cache_dir(os.environ))


@pytest.fixture(scope="session")
def gemma3_gguf() -> Path:
    """Gemma 3 270M, Q4_K_M (sliding windows, q and k norms, several block formats)."""
    return resolve_model("gemma3-270m", cache_dir=default_cache_dir(os.environ))


@pytest.fixture(autouse=True)
def no_log_left_behind() -> Iterator[None]:
    """Commands that a test runs in this process print their log to the stderr of that test, which is closed after it."""
    yield
    logger = logging.getLogger("octavo")
    for handler in [handler for handler in logger.handlers if handler.get_name() == "octavo"]:
        logger.removeHandler(handler)
        logger.propagate = True
