"""The service layer knows no protocol."""

from __future__ import annotations

import ast
from pathlib import Path

import octavo.server.service as service

FOREIGN = {"fastapi", "starlette", "pydantic", "uvicorn", "grpc"}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_no_file_imports_a_protocol() -> None:
    files = sorted(Path(str(service.__file__)).parent.glob("*.py"))
    assert len(files) > 3
    for path in files:
        for name in imported(path):
            assert name.split(".")[0] not in FOREIGN, f"{path.name} imports {name}"
            assert not name.startswith("octavo.server") or name.startswith("octavo.server.service"), f"{path.name}: {name}"
