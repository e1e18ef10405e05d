"""One concept per file, under 400 lines; functions under 60."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def python_files() -> list[Path]:
    return [path for folder in ("src", "tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]


def native_files() -> list[Path]:
    return [path for path in sorted((ROOT / "native").rglob("*")) if path.suffix in (".h", ".cpp")]


def test_files_stay_under_400_lines() -> None:
    long = []
    for path in python_files() + native_files():
        lines = len(path.read_text().splitlines())
        if lines > MAX_FILE_LINES:
            long.append(f"{path.relative_to(ROOT)}: {lines}")
    assert not long, "\n".join(long)


def test_functions_stay_under_60_lines() -> None:
    long = []
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines}")
    assert not long, "\n".join(long)
