"""Every path and link in README and docs leads to something that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASES = [ROOT, ROOT / "src" / "octavo", ROOT / "native"]
"""The pages name a file from the root, or from one of the two trees of sources."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MEANS_NO_FILE = {"FAST25-release/traces", "profiles/"}
"""Folders of other projects, and folders that a user makes."""

_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_BEFORE = r"(?<![\w./:~-])"
_PATH = re.compile(
    rf"{_BEFORE}[\w.-]+(?:/[\w.-]+)*(?:/|\.(?:py|cpp|h|md|svg|mjs))(?![\w/*-])|{_BEFORE}[\w.-]+(?:/[\w-]+)+(?![\w/.*-])"
)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_MODULE = re.compile(r"python -m (octavo[\w.]*)")
_MEDIA_TYPE = re.compile(r"(?:application|text|image)/[\w.-]+")


def paths(page: str) -> list[str]:
    """What the page says in code spans and looks like a path: a folder and a name, or a name that ends as sources do."""
    spans = _CODE.findall(page)
    found = [path for span in spans for path in _PATH.findall(span) if "/" in path and not _MEDIA_TYPE.fullmatch(path)]
    return [path for path in found if path not in MEANS_NO_FILE]


def modules(page: str) -> list[str]:
    return [name.replace(".", "/") for name in _MODULE.findall(page)]


def missing(page: str) -> list[str]:
    lost = [path for path in paths(page) if not any((base / path).exists() for base in BASES)]
    ends = (".py", "/__main__.py")
    return lost + [name for name in modules(page) if not any((ROOT / "src" / f"{name}{end}").exists() for end in ends)]


def anchors(page: str) -> set[str]:
    """The names that a heading gets in a rendered page."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(page)}


def broken_links(page: str, folder: Path) -> list[str]:
    broken = []
    for link in _LINK.findall(page):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        is_lost = bool(name) and not (folder / name).exists()
        if is_lost or (anchor and anchor not in anchors((folder / name).read_text() if name else page)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_paths_exist(path: Path) -> None:
    assert missing(path.read_text()) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path.read_text(), path.parent) == []


def test_a_stale_path_is_seen() -> None:
    page = "`engine/auto_tune.py`, `python benchmarks/no_such.py MODEL`, `octavo/engine/`, `kernels/none.h`"
    assert missing(page) == ["engine/auto_tune.py", "benchmarks/no_such.py", "octavo/engine/", "kernels/none.h"]
    assert missing("`python -m octavo.none`, `python -m octavo.config.flags`") == ["octavo/none"]


def test_a_broken_link_is_seen() -> None:
    page = "# One\n[a](none.md) [b](#two) [c](#one) [d](docs/errors.md#fields) [e](docs/errors.md#none)"
    assert broken_links(page, ROOT) == ["none.md", "#two", "docs/errors.md#none"]


def test_routes_and_types_are_no_paths() -> None:
    assert paths("`/v1/models`, `application/json`, `http://127.0.0.1:8000/v1`, `~/.cache/octavo`, `original/**/*`") == []
    assert len(paths(" ".join(path.read_text() for path in PAGES))) > 60
