"""The import contract of src/octavo, as a function of a source tree: what may import what, and every import that breaks it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Top to bottom; rooms on one line stand side by side and may not import each other.
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
    ("grammar",),
    ("loader",),
    ("config",),
    ("sequence",),
    ("request", "step"),
    ("pooling_params",),
    ("sampling_params", "registry", "log", "streams", "dialogue"),
    ("structured_outputs", "sandbox"),
    ("errors",),
)
ROOMS = tuple(room for rooms in RANKING for room in rooms)

_CORE = ("engine.core", "engine.tuning", "scheduler", "kvcache", "worker", "models", "ops")
"""What runs in the core process alone."""
FORBIDDEN: dict[str, tuple[str, ...]] = {
    # Pure: they share step.py with the worker, and know nothing of arrays, files and text.
    "scheduler": ("worker", "models", "ops", "text", "loader"),
    "kvcache": ("worker", "models", "ops", "text", "loader"),
    # Token ids in, token ids out.
    "worker": ("text",),
    "models": ("text",),
    "ops": ("text",),
    # The border between the two processes; only engine/llm_engine.py, which has both in one, crosses it.
    "engine.frontend": ("engine.llm_engine", *_CORE),
    "engine.wire": ("engine.llm_engine", "engine.args", "engine.frontend", "text", *_CORE),
    "engine.args": ("engine.llm_engine", "engine.frontend", "engine.wire", "text", *_CORE),
    "engine.core": ("engine.llm_engine", "engine.args", "engine.frontend", "text"),
    "engine.tuning": ("engine.llm_engine", "engine.args", "engine.frontend", "engine.core", "text"),
    "server": ("engine.llm_engine", *_CORE),
    "llm": _CORE,
    "utils": _CORE,
    "loadgen": ("engine", *_CORE),
}
"""Beyond the ranking: what a room, or a part of one, may not import although it stands above it."""
EXCEPTIONS = ("kvcache.report",)
"""Plain values that cross the border in messages: it imports nothing, see API_PROCESS."""
API_PROCESS = ("engine.frontend", "engine.wire", "server", "text")
"""What these load, themselves and through others, has no part of the core in it."""
LATE = ("cli.simulate_options", "server.batch.command", "server.run")
"""Modules that may import octavo inside functions: a command must answer before the engine or the web stack is loaded."""

HEAVY = ("torch", "transformers", "ray")
"""Packages that nothing here may import."""
OPTIONAL = ("matplotlib",)
"""Packages that need not be there: never imported at the top of a file."""
NATIVE_ROOMS = ("ops.cpu", "loader.mapped_file")
"""Arithmetic; and the guard of file maps, which must be there before anyone reads from one."""

_ENTRY = re.compile(r"(octavo(?:\.\w+)+):\w+")
"""How the tables of registries name what they import."""


@dataclass(frozen=True)
class Import:
    """`importer` and `module` without the leading "octavo." where they are octavo's; module is "" for the package itself."""

    importer: str
    line: int
    module: str
    is_own: bool
    is_late: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {'octavo.' * self.is_own}{self.module}"


def imports_of(source: Path) -> list[Import]:
    """All imports below source, which is the folder of the package octavo: absolute and relative ones, at the top, under
    TYPE_CHECKING and in functions, by import_module, and in the tables of registries. What octavo/__init__.py imports is left
    out: its public names are loaded when they are used."""
    modules = {_module_of(source, path): path for path in sorted(source.rglob("*.py"))}
    return [entry for module, path in modules.items() if module for entry in _imports_in(module, path, modules)]


def violations(source: Path) -> list[str]:
    """One line for every import that the contract does not allow."""
    found = imports_of(source)
    wrong = [f"{entry}: {why}" for entry in found if (why := _fault(entry))]
    reached = _reached([entry for entry in found if entry.is_own], API_PROCESS)
    return wrong + [f"the API process loads {module} through {entry}" for module, entry in sorted(reached.items())]


def level(room: str) -> int:
    """0 for the top of the ranking. Raises StopIteration for a room that has no place in it."""
    return next(index for index, rooms in enumerate(RANKING) if room in rooms)


def is_within(module: str, part: str) -> bool:
    """Whether a module is this part of octavo, or lies in it."""
    return module == part or module.startswith(part + ".")


def _fault(entry: Import) -> str | None:
    package = entry.module.split(".")[0]
    if not entry.is_own:
        if package in HEAVY:
            return "nothing here needs it"
        return "an optional package is imported where it is used" if package in OPTIONAL and not entry.is_late else None
    if package == "_native":
        allowed = any(is_within(entry.importer, room) for room in NATIVE_ROOMS)
        return None if allowed else f"only {' and '.join(NATIVE_ROOMS)} may"
    if entry.is_late and entry.importer not in LATE:
        return "imports stand at the top"
    if not package:
        return None if is_within(entry.importer, "cli") else "the public names stand above all rooms"
    room = entry.importer.split(".")[0]
    if package not in ROOMS or room not in ROOMS:
        return "a room without a place in the ranking"
    if package != room and level(package) <= level(room):
        return "imports point down"
    return _forbidden(entry)


def _forbidden(entry: Import) -> str | None:
    for part, others in FORBIDDEN.items():
        if is_within(entry.importer, part) and entry.module not in EXCEPTIONS:
            hit = next((other for other in others if is_within(entry.module, other)), None)
            if hit is not None:
                return f"{part} may not import {hit}"
    return None


def _reached(found: list[Import], starts: tuple[str, ...]) -> dict[str, Import]:
    """Modules of the core that are loaded with those within `starts`, each with the import that leads to it."""
    by_importer: dict[str, list[Import]] = {}
    for entry in found:
        by_importer.setdefault(entry.importer, []).append(entry)
    todo = [module for module in by_importer if any(is_within(module, start) for start in starts)]
    seen, reached = set(todo), {}
    while todo:
        for entry in by_importer.get(todo.pop(), []):
            if entry.module in seen:
                continue
            seen.add(entry.module)
            todo.append(entry.module)
            if entry.module not in EXCEPTIONS and any(is_within(entry.module, part) for part in _CORE):
                reached[entry.module] = entry
    return reached


def _module_of(source: Path, path: Path) -> str:
    """Dotted name without "octavo."; a package has the name of its folder, octavo itself "", python -m octavo is the cli's."""
    parts = list(path.relative_to(source).with_suffix("").parts)
    if parts == ["__main__"]:
        return "cli.__main__"
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports_in(module: str, path: Path, modules: dict[str, Path]) -> Iterator[Import]:
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    late = {id(child) for function in functions for child in ast.walk(function)}
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree):
        for name in _names(node, package, modules):
            is_own = name == "octavo" or name.startswith("octavo.")
            plain = name.removeprefix("octavo").removeprefix(".") if is_own else name
            # A table entry or import_module says that it is late on purpose; whoever writes `import` means the top of the file.
            is_late = id(node) in late and (isinstance(node, ast.Import | ast.ImportFrom) or not is_own)
            yield Import(module, getattr(node, "lineno", 0), plain, is_own, is_late)


def _names(node: ast.AST, package: list[str], modules: dict[str, Path]) -> Iterator[str]:
    """The full names of the modules that one node of a file in `package` imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            base = ".".join(["octavo", *package[: len(package) - node.level + 1], *filter(None, [node.module])])
        for alias in node.names:
            # `from octavo.engine import frontend` imports a module, `from octavo.errors import ConfigError` only names one.
            inner = f"{base}.{alias.name}"
            is_module = inner.removeprefix("octavo.") in modules or inner == "octavo._native"
            if is_module or not (base == "octavo" and alias.name == "__version__"):
                yield inner if is_module else base
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function in ("import_module", "__import__"):
            yield str(node.args[0].value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        table_entry = _ENTRY.fullmatch(node.value)
        if table_entry is not None:
            yield table_entry[1]
