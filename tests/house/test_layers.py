"""The import contract: a room imports only from rooms below it, at the top of the file, and optional packages late."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "octavo"

# Top to bottom; rooms on one line stand side by side and may not import each other, except as EXCEPTIONS says.
RANKING: tuple[tuple[str, ...], ...] = (
    ("cli",),
    ("tuner",),
    ("quantize", "loadgen", "simulator"),
    ("llm", "server", "utils"),
    ("engine",),
    ("scheduler",),
    ("kvcache",),
    ("worker",),
    ("models",),
    ("ops",),
    ("text",),
    ("loader",),
    ("config",),
    ("sequence",),
    ("request", "step"),
    ("sampling_params", "registry", "log"),
    ("errors",),
)
# scheduler/ and kvcache/ share step.py with the worker, never the worker itself.
FORBIDDEN = {("scheduler", "worker"), ("kvcache", "worker"), ("scheduler", "models"), ("kvcache", "models")}
HEAVY = {"torch", "transformers", "ray"}
NATIVE_ROOM = "ops.cpu"


def rank(room: str) -> int:
    return next(level for level, rooms in enumerate(RANKING) if room in rooms)


def room_of(module: str) -> str:
    return module.split(".")[1]


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(module, line, is at the top of the file) of every import."""
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in top
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno, id(node) in top


def sources() -> Iterator[tuple[Path, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        relative = path.relative_to(SOURCE)
        if relative.name == "__init__.py" and len(relative.parts) == 1:
            continue  # the public names, imported lazily
        room = relative.parts[0].removesuffix(".py")
        yield path, "cli" if room == "__main__" else room


def test_every_room_stands_in_the_ranking() -> None:
    known = {room for rooms in RANKING for room in rooms}
    found = {room for _, room in sources()}
    assert found <= known, f"rooms without a rank: {sorted(found - known)}"


def test_imports_point_down() -> None:
    wrong = []
    for path, room in sources():
        for module, line, _ in imports(path):
            if not module.startswith("octavo.") or module == "octavo._native":
                continue
            target = room_of(module)
            if target != room and (rank(target) <= rank(room) or (room, target) in FORBIDDEN):
                wrong.append(f"{path.relative_to(SOURCE)}:{line} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_heavy_packages_are_not_imported() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports {module}"
        for path, _ in sources()
        for module, line, _ in imports(path)
        if module.split(".")[0] in HEAVY
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_cpu_backend_imports_the_native_core() -> None:
    wrong = [
        str(path.relative_to(SOURCE))
        for path, _ in sources()
        for module, _, _ in imports(path)
        if module.startswith("octavo._native") and ".".join(path.relative_to(SOURCE).parts[:2]) != NATIVE_ROOM
    ]
    assert not wrong, "\n".join(wrong)
