"""Fixtures of the text room: the golden corpus, digests and renderings (see tests/golden/text/make_golden.py)."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from octavo.text.hf_tokenizer import tokenizer_from_folder
from octavo.text.tokenizer import Tokenizer

GOLDEN = Path(__file__).parents[2] / "golden" / "text"


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"golden_text_{name}", GOLDEN / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def documents() -> dict[str, str]:
    texts: dict[str, str] = _module("corpus").documents()
    return texts


@pytest.fixture(scope="session")
def chat_cases() -> ModuleType:
    return _module("chat_cases")


@pytest.fixture(scope="session")
def golden_tokens() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((GOLDEN / "golden_tokens.json").read_text())
    return data


@pytest.fixture(scope="session")
def golden_chats() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((GOLDEN / "golden_chats.json").read_text())["chats"]
    return data


@pytest.fixture(scope="session")
def small_tokenizer() -> Callable[[str], Tokenizer]:
    """Name -> tokenizer of a golden folder."""
    return cache(lambda name: tokenizer_from_folder(GOLDEN / "tokenizers" / name))


@pytest.fixture(scope="session")
def template_source() -> Callable[[str], str]:
    return lambda name: (GOLDEN / "templates" / f"{name}.jinja").read_text()
