"""completion_bar: how far a batch of prompts is, as a bar of our own or of the caller's making."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

UseTqdm = bool | Callable[..., Any]
"""True shows a bar, False none; a callable is called like tqdm (`total`, `desc`, `dynamic_ncols`) and makes it."""


@contextmanager
def completion_bar(use_tqdm: UseTqdm, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Over `what`, such as "completions". Call what it gives once for each prompt that is done, with its number of tokens."""
    if callable(use_tqdm):
        bar = use_tqdm(total=total, desc="Processed prompts", dynamic_ncols=True)
        try:
            yield lambda num_tokens: bar.update(1)
        finally:
            bar.close()
        return
    with _rich_bar(disable=not use_tqdm) as progress:
        task = progress.add_task(what, total=total, rate="")
        start_s, so_far = time.monotonic(), 0

        def advance(num_tokens: int) -> None:
            nonlocal so_far
            so_far += num_tokens
            rate = f"{so_far / max(1e-9, time.monotonic() - start_s):.1f} tokens/s"
            progress.update(task, advance=1, rate=rate)

        yield advance


def _rich_bar(*, disable: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rate]}"),
        console=Console(stderr=True),
        transient=True,
        disable=disable,
    )
