"""The import contract holds for the source tree, and its check sees every way to break it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.house.layers import FORBIDDEN, ROOMS, imports_of, level, violations

SOURCE = Path(__file__).parents[2] / "src" / "octavo"


def test_the_source_tree_keeps_the_contract() -> None:
    wrong = violations(SOURCE)
    assert not wrong, "\n".join(wrong)


def test_every_room_has_a_place_in_the_ranking() -> None:
    found = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    assert found - {"__init__", "__main__"} == set(ROOMS)


def test_every_part_that_the_contract_names_is_there() -> None:
    """A renamed folder must not leave a rule behind that guards nothing."""
    places = [SOURCE / name.replace(".", "/") for part, others in FORBIDDEN.items() for name in (part, *others)]
    missing = sorted({str(place) for place in places if not (place.is_dir() or place.with_suffix(".py").exists())})
    assert not missing


def tree(folder: Path, files: dict[str, str]) -> Path:
    """A small package octavo of these files."""
    for name, text in files.items():
        path = folder / "octavo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "octavo"


FOLDERS = {
    "scheduler/__init__.py": "",
    "scheduler/scheduler.py": "",
    "worker/__init__.py": "",
    "worker/worker.py": "",
    "engine/__init__.py": "",
    "engine/core/__init__.py": "",
    "engine/core/engine_core.py": "",
    "engine/frontend/__init__.py": "",
    "engine/frontend/ledger.py": "",
    "ops/__init__.py": "",
    "kvcache/report.py": "",
    "kvcache/manager.py": "",
    "server/__init__.py": "",
}


def test_a_tree_without_faults_has_no_violation(tmp_path: Path) -> None:
    good = "from octavo.worker.worker import Worker\nfrom . import core\nimport octavo.scheduler.scheduler\n"
    assert violations(tree(tmp_path, {**FOLDERS, "engine/core/good.py": good})) == []


@pytest.mark.parametrize(
    "line",
    [
        "from octavo.worker.worker import Worker",
        "from octavo.worker import worker",
        "from octavo import worker",
        "import octavo.worker.worker",
        "import octavo.worker.worker as hidden",
        "import os, octavo.worker.worker",
        "from ..worker.worker import Worker",
        "from ..worker import worker",
        "from .. import worker",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from octavo.worker.worker import Worker",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..worker.worker import Worker",
        "try:\n    import octavo.worker.worker\nexcept ImportError:\n    pass",
        "class Late:\n    from octavo.worker.worker import Worker",
        "import importlib\nworker = importlib.import_module('octavo.worker.worker')",
        "from importlib import import_module\nworker = import_module('octavo.worker.worker')",
        "worker = __import__('octavo.worker.worker')",
        "TABLE = {'one': 'octavo.worker.worker:Worker'}",
    ],
)
def test_the_check_sees_every_way_to_import(tmp_path: Path, line: str) -> None:
    wrong = violations(tree(tmp_path, {**FOLDERS, "scheduler/probe.py": f"{line}\n"}))
    assert [text for text in wrong if "scheduler may not import worker" in text], wrong


@pytest.mark.parametrize(
    "line",
    [
        "def late():\n    from octavo.worker.worker import Worker",
        "async def late():\n    import octavo.worker.worker",
        "class Late:\n    def late(self):\n        if self:\n            from ...worker import worker",
    ],
)
def test_the_check_sees_imports_inside_functions(tmp_path: Path, line: str) -> None:
    source = tree(tmp_path, {**FOLDERS, "engine/core/probe.py": f"{line}\n"})
    assert [entry.module for entry in imports_of(source) if entry.importer == "engine.core.probe"] == ["worker.worker"]
    wrong = violations(source)
    assert len(wrong) == 1 and "imports stand at the top" in wrong[0]


@pytest.mark.parametrize("room", ROOMS)
def test_every_pair_of_rooms_is_judged(tmp_path: Path, room: str) -> None:
    """From each room, each other room is imported once: seen are those above and beside it, and those that are forbidden."""
    others = [other for other in ROOMS if other != room]
    source = tree(tmp_path, {f"{name}/__init__.py": "" for name in ROOMS})
    tree(tmp_path, {f"{room}/probe.py": "".join(f"from octavo.{other} import thing\n" for other in others)})
    start = f"{room}.probe:"
    wrong = {text.split(" imports octavo.")[1].split(":")[0] for text in violations(source) if text.startswith(start)}
    forbidden = {other for part, parts in FORBIDDEN.items() if part == room for other in parts if "." not in other}
    assert wrong == {other for other in others if level(other) <= level(room)} | forbidden


@pytest.mark.parametrize(("part", "other"), [(part, other) for part, others in FORBIDDEN.items() for other in others])
def test_every_forbidden_part_is_seen(tmp_path: Path, part: str, other: str) -> None:
    """From inside a part, whatever lies inside the other one."""
    files = {f"{name.replace('.', '/')}/__init__.py": "" for name in (part, other)}
    source = tree(tmp_path, {**files, f"{other.replace('.', '/')}/inner.py": ""})
    tree(tmp_path, {f"{part.replace('.', '/')}/probe.py": f"from octavo.{other}.inner import thing\n"})
    assert [text for text in violations(source) if text.startswith(f"{part}.probe:1 imports octavo.{other}.inner")]


def test_the_border_between_the_processes_is_seen_from_both_sides(tmp_path: Path) -> None:
    files = {
        "engine/frontend/a.py": "from octavo.engine.core.engine_core import EngineCore\n",
        "engine/frontend/b.py": "from ..core import engine_core\n",
        "engine/core/c.py": "from octavo.engine.frontend.ledger import Ledger\n",
        "engine/core/d.py": "from ..frontend.ledger import Ledger\n",
        "engine/llm_engine.py": "from .core import engine_core\nfrom .frontend import ledger\n",
    }
    wrong = [text.split(" ")[0] for text in violations(tree(tmp_path, {**FOLDERS, **files})) if "may not import" in text]
    assert wrong == ["engine.core.c:1", "engine.core.d:1", "engine.frontend.a:1", "engine.frontend.b:1"]


def test_values_cross_the_border_and_what_makes_them_does_not(tmp_path: Path) -> None:
    files = {**FOLDERS, "engine/frontend/a.py": "from octavo.kvcache.report import MemoryReport\n"}
    assert violations(tree(tmp_path / "one", files)) == []
    heavy = {**files, "kvcache/report.py": "from octavo.kvcache.manager import KVCacheManager\n"}
    assert violations(tree(tmp_path / "two", heavy)) == [
        "the API process loads kvcache.manager through kvcache.report:1 imports octavo.kvcache.manager"
    ]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("engine/core/a.py", "import torch\n", "nothing here needs it"),
        ("ops/a.py", "def late():\n    from transformers import AutoModel\n", "nothing here needs it"),
        ("server/a.py", "import ray.data as data\n", "nothing here needs it"),
        ("worker/a.py", "from octavo import _native\n", "only ops.cpu and loader.mapped_file may"),
        ("worker/a.py", "from octavo._native import Pool\n", "only ops.cpu and loader.mapped_file may"),
        ("ops/a.py", "from .. import _native\n", "only ops.cpu and loader.mapped_file may"),
        ("engine/core/a.py", "import matplotlib.figure\n", "an optional package is imported where it is used"),
        ("engine/core/a.py", "from octavo import LLM\n", "the public names stand above all rooms"),
        ("engine/core/a.py", "from ... import LLM\n", "the public names stand above all rooms"),
        ("newroom/a.py", "from octavo.worker import worker\n", "a room without a place in the ranking"),
    ],
)
def test_packages_and_the_native_core_are_kept_where_they_belong(tmp_path: Path, name: str, text: str, why: str) -> None:
    wrong = violations(tree(tmp_path, {**FOLDERS, name: text}))
    assert len(wrong) == 1 and wrong[0].endswith(why), wrong
