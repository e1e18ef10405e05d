"""PrefixCache: finds the block that already holds the keys and values of a given beginning of tokens.

A full block is known by the SHA-256 of (digest of the block before it, its token ids); the chain starts from a root over all
else that keys and values depend on. Equal digests therefore mean equal content, and a client can neither forge a hit on foreign
content nor, with a salt of its own, probe what others have asked.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence as Tokens

_DOMAIN = b"octavo-kv-1"
MAX_TOKEN_ID = 2**32 - 1
"""Token ids are hashed as little-endian unsigned 32-bit integers."""


def root_digest(weights_version: str, adapter_id: str, cache_salt: str) -> bytes:
    """Start of the chain. Each part is preceded by its length, so that no two different triples read the same."""
    sha = hashlib.sha256(_DOMAIN)
    for part in (weights_version, adapter_id, cache_salt):
        raw = part.encode("utf-8", "surrogatepass")
        sha.update(len(raw).to_bytes(8, "little"))
        sha.update(raw)
    return sha.digest()


class PrefixCache:
    """Digest of a full block <-> the block that holds it, each way at most one. Knows nothing of users or free lists."""

    __slots__ = ("_block_of", "_pack", "digests")

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._block_of: dict[bytes, int] = {}
        self._pack = struct.Struct(f"<{block_size}I").pack
        self.digests: list[bytes | None] = [None] * num_blocks
        """Digest under which each block can be found; None when it cannot. For reading only."""

    def __len__(self) -> int:
        """Number of blocks that can be found."""
        return len(self._block_of)

    def chain(self, parent: bytes, token_ids: Tokens[int]) -> bytes:
        """Digest of a full block: parent is the digest of the block before it, or the root; token_ids has block_size ids."""
        return hashlib.sha256(parent + self._pack(*token_ids)).digest()

    def find(self, digest: bytes) -> int | None:
        """The block with this content, if there is one."""
        return self._block_of.get(digest)

    def insert(self, digest: bytes, block_id: int) -> bool:
        """Make a block findable. False when an equal block is there already: the first one is kept, others stay private."""
        if digest in self._block_of:
            return False
        assert self.digests[block_id] is None, f"block {block_id} is in the prefix cache under another digest"
        self._block_of[digest] = block_id
        self.digests[block_id] = digest
        return True

    def evict(self, block_id: int) -> None:
        """The block is about to be reused: its old content can no longer be found. Nothing happens if it could not anyway."""
        digest = self.digests[block_id]
        if digest is not None:
            del self._block_of[digest]
            self.digests[block_id] = None

    def check_integrity(self) -> None:
        """Raise AssertionError unless both directions agree."""
        back = {digest: block_id for block_id, digest in enumerate(self.digests) if digest is not None}
        assert back == self._block_of, "prefix cache: digest -> block and block -> digest disagree"
