"""The progress bar of a pull."""

from __future__ import annotations

import io
from contextlib import suppress

from rich.console import Console

from octavo.errors import LoadError
from octavo.loader.progress import PullProgress


def test_nothing_is_shown_when_nothing_is_fetched() -> None:
    out = io.StringIO()
    with PullProgress(Console(file=out, force_terminal=True)):
        pass
    assert out.getvalue() == ""


def test_each_stage_has_a_bar() -> None:
    out = io.StringIO()
    with PullProgress(Console(file=out, force_terminal=True, width=100)) as report:
        report("downloading tiny", 50, 100)
        report("downloading tiny", 100, 100)
        report("verifying", 10, None)
    assert "downloading tiny" in out.getvalue() and "verifying" in out.getvalue()


def test_a_failed_pull_leaves_no_bar_beside_its_error() -> None:
    out = io.StringIO()
    with suppress(LoadError), PullProgress(Console(file=out, width=100)) as report:
        report("downloading tiny", 0, 100)
        raise LoadError("tiny: no network")
    assert "downloading" not in out.getvalue()
