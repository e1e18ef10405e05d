"""lazy_pull_progress: a download bar that costs nothing when nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module


@contextmanager
def lazy_pull_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """A `FetchReport` whose progress bar, and the slow rich library with it, is loaded at the first report."""
    with ExitStack() as stack:
        bar: Callable[[str, int, int | None], None] | None = None

        def report(stage: str, done: int, total: int | None) -> None:
            nonlocal bar
            if bar is None:
                bar = stack.enter_context(import_module("octavo.loader.progress").PullProgress())
            assert bar is not None
            bar(stage, done, total)

        yield report
