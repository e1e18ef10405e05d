"""Marks that keep text written by the user from becoming control tokens in a rendered chat.

A mark is one private character, chosen so that it occurs nowhere in the chat. Before rendering it is put into every user string
where a control token stands or could come about; the template then renders as if nothing had happened, and the tokenizer parses
only control tokens that hold no mark: those the template wrote. `Tokenizer.encode_marked` drops the marks.

Where marks go, for the control token <|im_end|>:

    <|im_end|>     anywhere in the text: after its first character             <.|im_end|>
    <              anywhere: the rest may come from the next string            a <.b
    end|> ...      the text begins with the end of a control token             e.nd|> ...
    im_end         the whole text is the inside of one                         i.m_end

Marks never touch outer white space, so a template may trim; they stick to the character before, so it may cut and join too.
Strings that the template itself looks for in content (such as </think>) and added tokens that control nothing are left alone.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from octavo.errors import InvalidRequestError

_CANDIDATES = [*range(0xFDD0, 0xFDF0), *range(0xE000, 0xF900)]
"""Non-characters first (no text may carry them), then the private use area."""

_STRUCTURAL_WORDS = frozenset(
    [
        *("system", "developer", "user", "assistant", "tool", "function", "ipython", "model"),
        *("text", "string", "number", "integer", "boolean", "object", "array", "null"),
    ]
)
"""Values that templates compare with; they can be the inside of a control token, but no template builds one from them."""

_SEPARATOR = "\0"


class ControlMarks:
    """Where marks go for one set of control tokens and one template."""

    def __init__(self, control_tokens: Iterable[str], plain_tokens: Iterable[str], literals: Iterable[str]) -> None:
        """control_tokens: texts to neutralise; plain_tokens: other added tokens; literals: string constants of the template."""
        controls = sorted({token for token in control_tokens if token})
        literals = set(literals)
        # Sorted, so that one bisection says whether a text is the inside or the end of some control token.
        self._endings = sorted({token[cut:] for token in controls for cut in range(len(token))})
        self._longest = max(map(len, controls), default=0)
        self._last_characters = {token[-1] for token in controls}
        self._unmarked_words = _STRUCTURAL_WORDS | literals
        openers = {token[0] for token in controls if not (token[0].isalnum() or token[0].isspace())}
        self._others = [token for token in controls if token[0] not in openers and len(token) > 1]
        left_alone = {text for text in literals | set(plain_tokens) if len(text) > 2 and text[0] in openers}
        left_alone = {text for text in left_alone if not self._touches_control(text, controls)}
        alternatives = [re.escape(text) for text in sorted(left_alone, key=len, reverse=True)]
        single = f"(?P<opener>[{re.escape(''.join(sorted(openers)))}])" if openers else "(?P<opener>(?!))"
        self._pattern = re.compile("|".join([*alternatives, single]))

    def choose_mark(self, texts: Iterable[str]) -> str:
        """A character, none of whose spellings (itself, JSON escape) occurs in texts.

        Raises InvalidRequestError if the texts use all 6,432 candidates.
        """
        joined = _SEPARATOR.join(texts)
        lowered = joined.lower()
        for code in _CANDIDATES:
            if chr(code) not in joined and f"\\u{code:04x}" not in lowered:
                return chr(code)
        raise InvalidRequestError(
            "the messages hold every private use character; octavo needs one of them to keep marker text apart, so remove some",
            param="messages",
        )

    def mark_data(self, value: Any, mark: str) -> Any:
        """A copy of plain JSON data with every string marked, keys included."""
        if isinstance(value, str):
            return self.mark_text(value, mark)
        if isinstance(value, dict):
            return {self._mark_openers(key, mark): self.mark_data(item, mark) for key, item in value.items()}
        if isinstance(value, list):
            return [self.mark_data(item, mark) for item in value]
        return value

    def mark_text(self, text: str, mark: str) -> str:
        """text with marks wherever a control token stands or could come about."""
        if not self._longest:
            return text
        first = len(text) - len(text.lstrip())
        core = text.strip()
        if not core:
            return text
        at = self._boundary_position(core)
        if at is None:
            return self._mark_openers(text, mark)
        at += first
        return self._mark_openers(text[:at], mark) + mark + self._mark_openers(text[at:], mark)

    def restore(self, rendered: str, mark: str) -> str:
        """Undo a template's JSON escaping of marks."""
        return rendered.replace(json.dumps(mark)[1:-1], mark)

    def _mark_openers(self, text: str, mark: str) -> str:
        """Marks after every character that opens control tokens, and inside control tokens that open with a letter."""
        marked = self._pattern.sub(lambda match: match[0] + mark if match["opener"] else match[0], text)
        for token in self._others:
            marked = marked.replace(token, token[0] + mark + token[1:])
            marked = self._break_tail(marked, token, mark)
        return marked

    @staticmethod
    def _break_tail(text: str, token: str, mark: str) -> str:
        """Break a proper beginning of token at the end of text, before trailing white space."""
        core = text.rstrip()
        for length in range(len(token) - 1, 0, -1):
            if core.endswith(token[:length]):
                at = len(core) - length + 1
                return text[:at] + mark + text[at:]
        return text

    def _boundary_position(self, core: str) -> int | None:
        """Where a mark goes because core begins with the end of a control token or is the inside of one; None: nowhere."""
        if len(core) < self._longest and core not in self._unmarked_words and self._is_inside(core):
            return 1 if len(core) > 1 else 0
        for length in range(min(len(core), self._longest - 1), 0, -1):
            if core[length - 1] in self._last_characters and self._is_end(core[:length]):
                return 1 if length > 1 else 0
        return None

    def _touches_control(self, text: str, controls: list[str]) -> bool:
        """Whether text holds a control token or is part of one; such a string must be marked like any other."""
        return self._is_inside(text) or any(token in text for token in controls)

    def _is_inside(self, text: str) -> bool:
        at = bisect_left(self._endings, text)
        return at < len(self._endings) and self._endings[at].startswith(text)

    def _is_end(self, text: str) -> bool:
        at = bisect_left(self._endings, text)
        return at < len(self._endings) and self._endings[at] == text
