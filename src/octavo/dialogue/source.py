"""Source: a model's text, which comes in pieces, for readers that are written as if it were all there.

A reader is a generator. It yields where it needs more text, and goes on when there is more, or no more. It looks at characters
only, never at the borders of pieces, so the same text gives the same result wherever it was cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
Reader = Generator[None, None, T]
_SPACE = re.compile(r"\s*")


class Source:
    """Text that has come and was not taken yet. ended: no more will come."""

    def __init__(self) -> None:
        self.ended = False
        self._text = ""
        self._at = 0
        self._kept: int | None = None

    def feed(self, text: str) -> None:
        """One piece more. What was taken goes, unless it is kept."""
        first = self._at if self._kept is None else self._kept
        self._text = self._text[first:] + text
        self._at -= first
        if self._kept is not None:
            self._kept = 0

    @property
    def rest(self) -> str:
        return self._text[self._at :]

    def keep(self) -> None:
        """Remember this place for `rewind`."""
        self._kept = self._at

    def release(self) -> None:
        self._kept = None

    def rewind(self) -> None:
        """Back to where `keep` was called."""
        if self._kept is not None:
            self._at, self._kept = self._kept, None

    def take(self, count: int) -> str:
        """The next `count` characters, which are there."""
        taken = self._text[self._at : self._at + count]
        self._at += count
        return taken

    def search(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The first match in what is there; its positions count from the start of `rest`."""
        return pattern.search(self.rest)

    def more(self) -> Reader[bool]:
        """Wait for more text; False when none will come."""
        if self.ended:
            return False
        yield
        return True

    def peek(self, count: int = 1) -> Reader[str]:
        """The next `count` characters, fewer only at the end. They are not taken."""
        while len(self._text) - self._at < count and (yield from self.more()):
            pass
        return self._text[self._at : self._at + count]

    def accept(self, text: str) -> Reader[bool]:
        """Take text if it comes next."""
        while len(self._text) - self._at < len(text):
            if not text.startswith(self.rest) or not (yield from self.more()):
                return False
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def space(self) -> Reader[str]:
        """Take white space."""
        taken = ""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            taken += match[0]
            self._at = match.end()
            if self._at < len(self._text) or not (yield from self.more()):
                return taken

    def copy_until(
        self, emit: Callable[[str], None], markers: tuple[str, ...], *, drops: tuple[str, ...] = (), trims: bool = False
    ) -> Reader[str | None]:
        """Pass the text on to emit up to the first of the markers, and take it; None if the text ends first.

        Held back is only what may be the beginning of a marker. drops: markers that are taken out of the text.
        trims: white space before a marker belongs to it, and is returned with it; white space at the end comes by itself.
        """
        pattern = _pattern((*markers, *drops), trims)
        while True:
            rest = self.rest
            match = pattern.search(rest)
            if match is not None:
                emit(rest[: match.start()])
                self._at += match.end()
                if match["marker"] not in drops:
                    return match[0]
                if match[0] != match["marker"]:
                    emit(match[0][: -len(match["marker"])])
                continue
            emit(self.take(len(rest) - _uncertain(rest, () if self.ended else (*markers, *drops), trims)))
            if not (yield from self.more()):
                emit(self.take(len(self.rest)))
                return None


@lru_cache(256)
def _pattern(markers: tuple[str, ...], trims: bool) -> re.Pattern[str]:
    longest_first = "|".join(re.escape(marker) for marker in sorted(markers, key=len, reverse=True)) or "(?!)"
    return re.compile((r"(?<!\s)\s*" if trims else "") + f"(?P<marker>{longest_first})")


def _uncertain(text: str, markers: tuple[str, ...], trims: bool) -> int:
    """Length of the end of text that may belong to a marker that is not complete."""
    longest = max(map(len, markers), default=1) - 1
    held = 0
    for length in range(min(longest, len(text)), 0, -1):
        if any(marker.startswith(text[-length:]) for marker in markers):
            held = length
            break
    if trims:
        before = text[: len(text) - held]
        held += len(before) - len(before.rstrip())
    return held
