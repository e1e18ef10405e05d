"""Speller: a text inside an answer, as the tokens that the model's tokenizer makes of it."""

from __future__ import annotations

from functools import cached_property

from tokenizers import Tokenizer as Backend

from octavo.grammar.tokens import TokenTable

MAX_CHARACTERS = 256
"""Of a text that are looked at in one call: who asks wants the first tokens, and asks again at each token."""
_UNSURE_TOKENS = 16
"""At a cut, what followed might have changed the last tokens."""
_MARK = "\x02"
"""A character that no tokenizer joins with others. What stands behind it does not stand at the beginning of a text."""


class Speller:
    """The tokens of a spelling always have the bytes of the text, or of its beginning if it is long. It is the same each time.

    Texts that the rules would change (a normaliser) and texts without rules are cut into the longest tokens there are.
    """

    def __init__(self, table: TokenTable) -> None:
        self._table = table
        self._backend = Backend.from_str(table.rules) if table.rules else None
        self._mark, self._mark_ids = "", []
        if self._backend is not None:
            # What looks like a control token is text here.
            self._backend.encode_special_tokens = True
            if self._bytes(self._encode("a")) != b"a":
                self._mark, self._mark_ids = _MARK, self._encode(_MARK)

    def spell(self, text: bytes) -> list[int]:
        """text is UTF-8."""
        whole = text.decode()
        head = whole[:MAX_CHARACTERS]
        ids = self._encoded(head)
        if ids is None:
            ids = self._longest(head.encode())
        return ids if len(head) == len(whole) else ids[: max(1, len(ids) - _UNSURE_TOKENS)]

    def _encoded(self, text: str) -> list[int] | None:
        """As the rules have it; None where they would change the text."""
        if self._backend is None:
            return None
        ids, skipped = self._encode(self._mark + text), len(self._mark_ids)
        if ids[:skipped] != self._mark_ids:
            return None
        return ids[skipped:] if self._bytes(ids[skipped:]) == text.encode() else None

    def _encode(self, text: str) -> list[int]:
        assert self._backend is not None
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def _bytes(self, ids: list[int]) -> bytes:
        tokens = self._table.tokens
        return b"".join(tokens[token_id] if token_id < len(tokens) else b"" for token_id in ids)

    def _longest(self, text: bytes) -> list[int]:
        """Bytes that no token has are left out; no answer can have them anyway."""
        ids, start = [], 0
        while start < len(text):
            ends = range(min(len(text), start + self._longest_token), start, -1)
            end = next((end for end in ends if text[start:end] in self._ids), None)
            if end is not None:
                ids.append(self._ids[text[start:end]])
            start = start + 1 if end is None else end
        return ids

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """The first id of each text."""
        special = {*self._table.special_ids, *self._table.eos_token_ids}
        ids: dict[bytes, int] = {}
        for token_id, token in enumerate(self._table.tokens):
            if token and token_id not in special:
                ids.setdefault(token, token_id)
        return ids

    @cached_property
    def _longest_token(self) -> int:
        return max(map(len, self._ids), default=1)
