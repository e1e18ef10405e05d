"""TextEmitter: token ids to bytes to text that is safe to send. One machine for streamed and whole answers.

    token ids --token_bytes--> bytes --incremental UTF-8--> characters --stop search--> text

Text is held back only while it could still change: an incomplete character, or characters that may be the beginning of a stop
string. Joining everything that `push` and `finish` return gives the text of the whole, wherever the token borders fall.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from octavo.text.tokenizer import Tokenizer


class TextEmitter:
    """The text of one completion, token by token.

    stopped     the stop string that ended the text, or None
    num_tokens  tokens taken; once stopped, the last of them is the one that completed the stop string

    Stop rule: the stop string that is complete first wins; of several that complete with the same character, the longest. So
    the result depends on the characters alone and no text beyond the match is ever needed. Invalid UTF-8 becomes U+FFFD as in
    `bytes.decode(errors="replace")` of the whole. A stop string may hold control tokens, which are searched although
    skip_special_tokens leaves them out of the text. No stop string ends within the first min_tokens tokens, as in vLLM.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        include_stop_str_in_output: bool = False,
        skip_special_tokens: bool = True,
        shown_token_ids: Sequence[int] = (),
        min_tokens: int = 0,
        at_start: bool = False,
    ) -> None:
        """at_start=True: the tokens begin a text of their own, so SentencePiece's leading space goes, as in Tokenizer.decode.
        Completions follow a prompt and keep it. shown_token_ids: control tokens that are not skipped."""
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._longest_stop = max(map(len, self._stop), default=0)
        self._stop_characters = frozenset("".join(text[:-1] for text in self._stop))
        self._include_stop = include_stop_str_in_output
        self._skipped = tokenizer.special_token_ids.difference(shown_token_ids) if skip_special_tokens else frozenset()
        self._at_start = at_start and tokenizer.strips_leading_space
        self._partial = b""
        """Bytes of a character whose end has not come yet."""
        self._held = ""
        self._hidden: list[tuple[int, int]] = []
        """Begin and end, within `_held`, of control tokens that are left out of the text."""
        self._min_tokens = min_tokens
        self._finished = False
        self.stopped: str | None = None
        self.num_tokens = 0

    def push(self, token_id: int) -> str:
        """Take one token; returns the text that is now final. After a stop, tokens are ignored and the text is empty."""
        if self.stopped is not None or self._finished:
            return ""
        self.num_tokens += 1
        if token_id in self._skipped:
            return self._search(self._tokenizer.added_tokens[token_id], is_hidden=True) if self._stop else ""
        raw = self._bytes(token_id) if self._at_start else self._tokenizer.token_bytes(token_id)
        return self._take(raw, final=False)

    def finish(self) -> str:
        """End of the sequence: returns what was held back; an incomplete character becomes U+FFFD. Further calls return ""."""
        if self.stopped is not None or self._finished:
            return ""
        self._finished = True
        text = self._take(b"", final=True)
        if self.stopped is None:
            text += self._visible(self._held, self._hidden)
            self._held = ""
        return text

    def _bytes(self, token_id: int) -> bytes:
        """Bytes of a token while the text has not begun."""
        self._at_start = not self._tokenizer.token_bytes(token_id) and self._tokenizer.strips_from_first_text
        return self._tokenizer.first_token_bytes(token_id)

    def _take(self, raw: bytes, final: bool) -> str:
        """Append bytes; returns what can go out, and records a stop. final: none will follow."""
        if self._partial:
            raw = self._partial + raw
        characters, num_used = codecs.utf_8_decode(raw, "replace", final)
        self._partial = raw[num_used:]
        return self._search(characters) if self._stop and characters else characters

    def _search(self, characters: str, *, is_hidden: bool = False) -> str:
        """Append characters that are searched for stops; returns what can go out. is_hidden: they are no part of the text."""
        pending, hidden = self._held + characters, self._hidden
        if is_hidden:
            hidden = [*hidden, (len(self._held), len(pending))]
        found = self._first_stop(pending, len(self._held)) if self.num_tokens > self._min_tokens else None
        if found is not None:
            start, stop = found
            self.stopped = stop
            self._held = ""
            return self._visible(pending[:start], hidden) + (stop if self._include_stop else "")
        safe = len(pending) - self._num_uncertain(pending)
        self._held = pending[safe:]
        self._hidden = [(max(0, begin - safe), end - safe) for begin, end in hidden if end > safe]
        return self._visible(pending[:safe], hidden)

    @staticmethod
    def _visible(text: str, hidden: list[tuple[int, int]]) -> str:
        """text without its hidden parts."""
        for begin, end in reversed(hidden):
            text = text[:begin] + text[end:]
        return text

    def _first_stop(self, pending: str, num_old: int) -> tuple[int, str] | None:
        """(position, stop string) of the match that ends first, the longest of those that end together.

        The first num_old characters were searched before, or came too early to stop anything.
        """
        best: tuple[int, int, str] | None = None
        for stop in self._stop:
            position = pending.find(stop, max(0, num_old + 1 - len(stop)))
            if position >= 0 and (best is None or (position + len(stop), position) < best[:2]):
                best = (position + len(stop), position, stop)
        return None if best is None else (best[1], best[2])

    def _num_uncertain(self, pending: str) -> int:
        """Length of the longest end of pending that is a proper beginning of a stop string."""
        if pending[-1] not in self._stop_characters:
            return 0
        for length in range(min(self._longest_stop - 1, len(pending)), 0, -1):
            tail = pending[-length:]
            if any(stop.startswith(tail) for stop in self._stop if len(stop) > length):
                return length
        return 0
