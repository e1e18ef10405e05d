"""Tokenizer: text to token ids and token ids to exact bytes, over the `tokenizers` library."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tokenizers import Tokenizer as Backend
from tokenizers import normalizers

from octavo.errors import ContextLengthError, InvalidRequestError
from octavo.text.library_faults import is_fault, reason
from octavo.text.token_bytes import SPACE_MARK, DecoderRules, bytes_of_token, parse_decoder

_HEAD_CHARACTERS = 16
"""Characters per token of the limit from which a text is looked at in part first; English and code have about 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSpec:
    """What the files say beside the vocabulary itself.

    source              file or folder, for error messages
    vocab_size          highest id + 1; None: count the vocabulary
    prefix_ids          ids put before a text when special tokens are added, usually [BOS]; suffix_ids after it
    special_tokens      names as templates see them ("bos_token", "eos_token", ...) -> token text
    chat_templates      template name -> Jinja source; the usual name is "default"
    fim_token_ids       the tokens before prefix, suffix and middle of a text to be filled in, where the file names them
    """

    source: str
    vocab_size: int | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    special_tokens: dict[str, str] = field(default_factory=dict)
    chat_templates: dict[str, str] = field(default_factory=dict)
    fim_token_ids: tuple[int, int, int] | None = None


class Tokenizer:
    """A vocabulary with its rules. Safe to use from several threads.

    bos_token_id, eos_token_ids   eos_token_ids may be empty
    special_token_ids             control tokens: left out of text by skip_special_tokens
    vocab_size                    highest id + 1; the model's embedding may have more rows (padding)

    Ids are those of transformers for the same files. Two deviations, both on decoding: `clean_up_tokenization_spaces` is never
    applied (it rewrites text across token borders, so a stream could not equal the whole), and invalid UTF-8 becomes U+FFFD
    as `bytes.decode(errors="replace")` does it, where the byte-fallback decoder writes one U+FFFD per byte.
    """

    def __init__(self, backend: Backend, spec: TokenizerSpec) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self.spec = spec
        self.bos_token_id = spec.bos_token_id
        self.eos_token_ids = spec.eos_token_ids
        added = backend.get_added_tokens_decoder()
        self.added_tokens: dict[int, str] = {token_id: token.content for token_id, token in added.items()}
        self._added_ids = {text: token_id for token_id, text in self.added_tokens.items()}
        self.special_token_ids: frozenset[int] = frozenset(i for i, token in added.items() if token.special)
        self.vocab_size = spec.vocab_size or max([backend.get_vocab_size(with_added_tokens=True), *(i + 1 for i in added)])
        decoder = backend.decoder
        description = None if decoder is None else json.loads(decoder.__getstate__())
        self._rules: DecoderRules = parse_decoder(description, spec.source)
        self._bytes: dict[int, bytes] = {}

    def control_ids(self, texts: Iterable[str]) -> dict[str, int]:
        """Those of the texts that are control tokens, with their ids."""
        found = {text: self._added_ids[text] for text in texts if text in self._added_ids}
        return {text: token_id for text, token_id in found.items() if token_id in self.special_token_ids}

    def added_id(self, text: str) -> int | None:
        """The id of an added token, be it a control token or not."""
        return self._added_ids.get(text)

    @property
    def adds_bos(self) -> bool:
        """Whether a plain text is given a BOS."""
        return self.bos_token_id is not None and self.bos_token_id in self.spec.prefix_ids

    @property
    def strips_leading_space(self) -> bool:
        """Whether decoding from the start of a sequence drops the space that encoding put there."""
        return self._rules.leading_space != "keep"

    @property
    def strips_from_first_text(self) -> bool:
        """Whether tokens without any bytes are passed over when the leading space is looked for."""
        return self._rules.leading_space == "strip_one"

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of text.

        add_special_tokens  put BOS (and EOS, where the model wants it) around; a text that begins with the BOS marker itself
                            gets no second one
        parse_special       control-token text becomes the control token; otherwise it is plain text
        Raises InvalidRequestError if text holds a lone surrogate, which has no UTF-8 form.
        """
        _require_utf8(text)
        with self._lock:
            self._backend.encode_special_tokens = not parse_special
            ids = self._run(text)
        return self.with_special_tokens(ids) if add_special_tokens else ids

    def encode_marked(self, text: str, mark: str) -> list[int]:
        """Token ids of text in which the single character `mark` keeps control-token text from being a control token.

        "<|im_end|>" is parsed, "<{mark}|im_end|>" is encoded as the plain text "<|im_end|>". Marks vanish. They are taken out
        by the normaliser, which runs after control tokens were looked up, so all else is as in one call to `encode`.
        """
        _require_utf8(text)
        remove = normalizers.Replace(mark, "")
        with self._lock:
            backend = self._backend
            backend.encode_special_tokens = False
            own = backend.normalizer
            backend.normalizer = remove if own is None else normalizers.Sequence([remove, own])
            try:
                ids = self._run(text.lstrip(mark))
            finally:
                backend.normalizer = own
        return ids

    def require_fits(self, text: str, max_tokens: int, param: str) -> None:
        """Refuse a text of clearly more than max_tokens tokens without tokenising all of it.

        A text near the limit passes: the exact count decides there. Tokenising costs about 100 bytes and a microsecond per
        character, so that megabytes must be refused by looking at a beginning of a length that the limit, not the sender, sets.
        Raises ContextLengthError.
        """
        enough, most = _HEAD_CHARACTERS * max_tokens, self.most_characters(max_tokens)
        if len(text) <= enough:
            return
        if len(text) > most:
            found = f"{len(text)} characters, and no {max_tokens} tokens have more than {most}"
        else:
            with self._lock:
                count = len(self._run(text[:enough].encode("utf-8", "replace").decode()))
            # A cut changes the tokens near it, never half of them.
            if count <= 2 * max_tokens:
                return
            found = f"{len(text)} characters, of which the first {enough} alone are {count} tokens"
        raise ContextLengthError.of(f"{param} has {found}", max_tokens, param)

    def most_characters(self, max_tokens: int) -> int:
        """No text of more characters has max_tokens tokens or fewer."""
        return self._longest_token * max_tokens

    def with_special_tokens(self, ids: list[int]) -> list[int]:
        """ids with the model's BOS and EOS around them, unless they are there already."""
        prefix, suffix = list(self.spec.prefix_ids), list(self.spec.suffix_ids)
        if prefix and ids[: len(prefix)] == prefix:
            prefix = []
        elif prefix and ids[:1] == [self.bos_token_id]:
            prefix = [token_id for token_id in prefix if token_id != self.bos_token_id]
        if suffix and ids[-len(suffix) :] == suffix:
            suffix = []
        return prefix + ids + suffix

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of a whole sequence; bytes that are not UTF-8 become U+FFFD."""
        return self.tokens_to_bytes(ids, skip_special_tokens=skip_special_tokens).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Exact bytes the token contributes inside a sequence; empty for an id outside the vocabulary (padding rows)."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._compute_bytes(token_id)
        return known

    def first_token_bytes(self, token_id: int) -> bytes:
        """The same at the very start of a sequence, where SentencePiece models drop their leading space."""
        raw = self.token_bytes(token_id)
        if self._rules.leading_space == "strip_one" and raw.startswith(b" "):
            return raw[1:]
        if self._rules.leading_space == "strip_first_token":
            text = (self.id_to_token(token_id) or "").replace(SPACE_MARK, "")
            return bytes_of_token(text, self._rules, token_id in self.added_tokens)
        return raw

    def token_text(self, token_id: int) -> str:
        """The token alone as text, for reports such as logprobs; incomplete characters show as U+FFFD (see token_bytes)."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def tokens_to_bytes(
        self,
        ids: Iterable[int],
        *,
        skip_special_tokens: bool = True,
        at_start: bool = True,
    ) -> bytes:
        """Concatenated bytes of ids. at_start=False: they continue a sequence, so a leading space stays."""
        skipped = self.special_token_ids if skip_special_tokens else frozenset()
        kept = [token_id for token_id in ids if token_id not in skipped]
        if not at_start or not self.strips_leading_space:
            return b"".join(map(self.token_bytes, kept))
        return self._join_from_start(kept)

    def token_to_id(self, text: str) -> int | None:
        """Id of a token by its vocabulary text, or None."""
        token_id: int | None = self._backend.token_to_id(text)
        return token_id

    def rules(self) -> str:
        """Vocabulary and rules as JSON of the library `tokenizers`, for those who encode elsewhere."""
        with self._lock:
            text: str = self._backend.to_str()
        return text

    def vocabulary(self) -> dict[str, int]:
        """Every token as the vocabulary spells it -> its id."""
        vocabulary: dict[str, int] = self._backend.get_vocab(with_added_tokens=True)
        return vocabulary

    def _run(self, text: str) -> list[int]:
        """Ids of text as the backend is set now. The batch call of the library, unlike the single one, lets other threads run
        meanwhile (a text of 600 kB: 0.5 s without any stream moving), and it skips character offsets, a third of the time."""
        try:
            ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        except BaseException as error:
            if not is_fault(error):
                raise
            raise InvalidRequestError(
                f"the tokenizer of this model cannot encode the text ({reason(error)}); send another text, or repair "
                f"{self.spec.source}",
                code="tokenizer_failed",
            ) from None
        return ids

    @cached_property
    def _longest_token(self) -> int:
        """Most characters a token stands for: the length of the longest; four times that under a normaliser, which may join
        characters."""
        longest = max(map(len, self._backend.get_vocab(with_added_tokens=True)))
        return longest if self._backend.normalizer is None else 4 * longest

    def _join_from_start(self, ids: list[int]) -> bytes:
        """Join, with the first token that has bytes at all losing its leading space."""
        for index, token_id in enumerate(ids):
            if self.token_bytes(token_id) or not self.strips_from_first_text:
                return self.first_token_bytes(token_id) + b"".join(map(self.token_bytes, ids[index + 1 :]))
        return b""

    def _compute_bytes(self, token_id: int) -> bytes:
        text = self.id_to_token(token_id)
        return b"" if text is None else bytes_of_token(text, self._rules, token_id in self.added_tokens)

    def id_to_token(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it, or None beyond it."""
        if token_id in self.added_tokens:
            return self.added_tokens[token_id]
        if not 0 <= token_id < self.vocab_size:
            return None
        text: str | None = self._backend.id_to_token(token_id)
        return text


def _require_utf8(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"the text holds a lone surrogate (U+{ord(text[error.start]):04X} at character {error.start}), which is not valid "
            "Unicode; send it as one character or replace it",
            code="invalid_unicode",
        ) from None
