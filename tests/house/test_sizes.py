"""One concept per file, under 400 lines; functions under 60; and the whole stays small."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

MAX_PYTHON_LINES = 32_500
"""Lines of code in src, and in native: without blank lines, comments and docstrings. Who needs more raises the number in the
same commit, and says there what the house got for it; who needs less lowers it."""
MAX_NATIVE_LINES = 7_200

_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def python_files() -> list[Path]:
    return [path for folder in ("src", "tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]


def native_files() -> list[Path]:
    return [path for path in sorted((ROOT / "native").rglob("*")) if path.suffix in (".h", ".cpp")]


def python_lines(text: str) -> int:
    """Lines with code on them. A string that stands alone is a docstring, wherever it is."""
    notes: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            notes.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - notes)


def native_lines(text: str) -> int:
    """Lines with code on them."""
    lines = (line.strip() for line in _BLOCK_COMMENT.sub("", text).splitlines())
    return sum(1 for line in lines if line and not line.startswith("//"))


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


def test_the_whole_stays_small() -> None:
    python = sum(python_lines(path.read_text()) for path in (ROOT / "src").rglob("*.py"))
    native = sum(native_lines(path.read_text()) for path in native_files())
    assert (python <= MAX_PYTHON_LINES, native <= MAX_NATIVE_LINES) == (True, True), f"{python} of Python, {native} of C++"


SAMPLE = '''"""Doc."""

# note
x = 1  # note
"""About

x."""

def f(a,
      b):
    """Doc
    doc."""
    return "one" \\
        """two

three"""
'''


def test_what_counts_as_a_line_of_python() -> None:
    assert python_lines(SAMPLE) == 1 + 2 + 4
    assert python_lines("") == python_lines("# note\n") == python_lines('class A:\n    """Doc."""\n') - 1 == 0


def test_what_counts_as_a_line_of_c() -> None:
    assert native_lines("// note\n#pragma once\n\n/* long\n   note */\nint x;  // note\nint /* in */ y;\n") == 3
