"""Limits on what a vocabulary may hold, wherever it was stored: the library multiplies some sizes and crashes on others."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from octavo.errors import LoadError

MAX_PIECE_CHARACTERS = 4096
"""The library frees its tree of unigram pieces by recursion, one call a character: one of 200,000 overflows the stack."""
MAX_CHARACTERS = 1 << 22
"""Of all pieces together: tree and merge table take about 100 bytes a character. The largest vocabularies have 2 million."""
_CONTINUATION_BYTES = frozenset(bytes([byte]) for byte in range(0x80, 0xC0))
"""Bytes of a UTF-8 character but its first."""
MAX_CHARSMAP_BYTES = 1 << 20
MAX_CHARSMAP_TEXT = 256
"""Bytes that a charsmap may put in the place of one character; the longest in use has 33."""


def check_pieces(pieces: Sequence[str], source: str) -> None:
    """Raise LoadError for a vocabulary with a piece, or pieces together, longer than the limits."""
    sizes = list(map(len, pieces))
    longest = max(sizes, default=0)
    if longest > MAX_PIECE_CHARACTERS:
        raise LoadError(
            f"{source}: token {sizes.index(longest)} has {longest} characters, more than the limit of {MAX_PIECE_CHARACTERS}"
        )
    if sum(sizes) > MAX_CHARACTERS:
        raise LoadError(f"{source}: the tokens have {sum(sizes)} characters, more than the limit of {MAX_CHARACTERS}")


def check_scores(scores: Sequence[float], source: str) -> None:
    """Raise LoadError for a score that is no finite number: the library cannot compare it."""
    for index, score in enumerate(scores):
        if not math.isfinite(score):
            raise LoadError(f"{source}: token {index} has the score {score}; expected a finite number")


def check_merges(merges: Sequence[object], prefix: str, source: str) -> None:
    """Raise LoadError for a merge from whose right side the library would cut half a character as the prefix of subwords: the
    text that is left is none, and the process dies when the library tells of it."""
    size = len(prefix.encode())
    for index, merge in enumerate(merges):
        right = str(
            merge.rpartition(" ")[2] if isinstance(merge, str) else merge[-1] if isinstance(merge, list) and merge else ""
        )
        if right.encode("utf-8", "replace")[size : size + 1] in _CONTINUATION_BYTES:
            raise LoadError(
                f"{source}: merge {index} does not go with continuing_subword_prefix {prefix[:40]!r}, whose {size} bytes end "
                "within a character of it"
            )


def check_charsmap(charsmap: bytes, source: str) -> None:
    """Raise LoadError for a SentencePiece charsmap that is damaged, or would make a short text huge.

    Layout: length of the trie in bytes u32 | trie | texts, each ended by a zero byte.
    """
    if len(charsmap) > MAX_CHARSMAP_BYTES:
        raise LoadError(f"{source}: the charsmap has {len(charsmap)} bytes, more than the limit of {MAX_CHARSMAP_BYTES}")
    trie_bytes = struct.unpack_from("<I", charsmap)[0] if len(charsmap) >= 4 else 0
    if not 0 < trie_bytes <= len(charsmap) - 4 or trie_bytes % 4:
        raise LoadError(f"{source}: the charsmap is damaged: its trie should have {trie_bytes} of {len(charsmap)} bytes")
    longest = max(map(len, charsmap[4 + trie_bytes :].split(b"\0")))
    if longest > MAX_CHARSMAP_TEXT:
        raise LoadError(f"{source}: the charsmap replaces a character by {longest} bytes, more than {MAX_CHARSMAP_TEXT}")
