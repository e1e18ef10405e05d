"""PullProgress: a rich progress bar that shows what resolve_model reports."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn


class PullProgress:
    """Context manager whose value is a `FetchReport`; one bar per stage, a pulsing one where the total is unknown.

    Nothing is shown until the first report, so a cached model leaves the terminal as it was.
    """

    def __init__(self, console: Console | None = None) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(*columns, console=console or Console(stderr=True))
        self._stages: dict[str, TaskID] = {}

    def __enter__(self) -> PullProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is not None:  # the line that says what went wrong stands alone
            for task in self._stages.values():
                self._progress.update(task, visible=False)
        self._progress.stop()

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """Show `done` of `total` bytes of a stage."""
        task = self._stages.get(stage)
        if task is None:
            self._progress.start()
            task = self._stages[stage] = self._progress.add_task(stage, total=total)
        self._progress.update(task, completed=done, total=total)
