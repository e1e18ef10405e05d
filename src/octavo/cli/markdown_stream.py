"""MarkdownStream: Markdown on a terminal while it is still being written.

A block (paragraph, list, code fence) that is complete is printed for good; only the block under way is redrawn. Redrawing the
whole answer would flicker, and could not scroll once it is taller than the window.
"""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown

REFRESH_PER_SECOND = 12


class MarkdownStream:
    """Feed it pieces of text, then close it. Where the output is no terminal the text passes through unchanged."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._plain = not console.is_terminal
        self._tail = ""
        self._live: Live | None = None

    def feed(self, text: str) -> None:
        if self._plain:
            self._console.file.write(text)
            self._console.file.flush()
            return
        self._tail += text
        blocks, self._tail = split_blocks(self._tail)
        for block in blocks:
            self._end_live()
            self._console.print(Markdown(block))
            self._console.print()
        if self._tail.strip():
            self._show_tail()

    def close(self) -> None:
        """Print what is left for good."""
        if self._plain:
            self._console.file.write("\n")
            self._console.file.flush()
            return
        self._end_live()
        if self._tail.strip():
            self._console.print(Markdown(self._tail))
        self._tail = ""

    def _show_tail(self) -> None:
        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=REFRESH_PER_SECOND, transient=True)
            self._live.start()
        self._live.update(Markdown(self._tail))

    def _end_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def split_blocks(text: str) -> tuple[list[str], str]:
    """(complete blocks, the rest). Blocks end at blank lines outside code fences; joined with blank lines they are the text."""
    blocks: list[str] = []
    lines: list[str] = []
    fence = ""
    rest = text.split("\n")
    last = rest.pop()
    for line in rest:
        stripped = line.strip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                fence = ""
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[0] * (len(stripped) - len(stripped.lstrip(stripped[0])))
        elif not stripped:
            if lines:
                blocks.append("\n".join(lines))
                lines = []
            continue
        lines.append(line)
    return blocks, "\n".join([*lines, last])
