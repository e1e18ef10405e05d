"""Content digests: what they depend on, and the two-way map of found blocks."""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kvcache.prefix_cache import MAX_TOKEN_ID, PrefixCache, root_digest


def test_the_digest_of_a_block_is_sha256_of_parent_and_little_endian_token_ids() -> None:
    cache, root = PrefixCache(4, 8), root_digest("w", "", "")
    tokens = [0, 1, 255, 256, 65536, 49151, MAX_TOKEN_ID, 7]
    assert cache.chain(root, tokens) == hashlib.sha256(root + struct.pack("<8I", *tokens)).digest()


def test_equal_tokens_behind_different_beginnings_have_different_digests() -> None:
    cache, root = PrefixCache(4, 2), root_digest("w", "", "")
    assert cache.chain(cache.chain(root, [1, 2]), [5, 6]) != cache.chain(cache.chain(root, [1, 3]), [5, 6])


@settings(max_examples=100, deadline=None)
@given(st.tuples(st.text(max_size=4), st.text(max_size=4), st.text(max_size=4)), st.tuples(*[st.text(max_size=4)] * 3))
def test_roots_are_equal_only_for_equal_weights_adapter_and_salt(a: tuple[str, str, str], b: tuple[str, str, str]) -> None:
    assert (root_digest(*a) == root_digest(*b)) == (a == b)


def test_a_text_moved_from_salt_to_adapter_gives_another_root() -> None:
    roots = {root_digest("w", "ab", ""), root_digest("w", "", "ab"), root_digest("w", "a", "b"), root_digest("wab", "", "")}
    assert len(roots) == 4


def test_a_salt_with_lone_surrogates_is_hashed_like_any_other() -> None:
    assert root_digest("w", "", "\ud800") != root_digest("w", "", "\ud801")


def test_of_two_blocks_with_equal_content_the_first_is_kept() -> None:
    cache = PrefixCache(4, 2)
    assert cache.insert(b"x", 1) and not cache.insert(b"x", 3)
    assert cache.find(b"x") == 1 and cache.digests[3] is None and len(cache) == 1
    cache.check_integrity()


def test_an_evicted_block_is_found_no_more_and_can_hold_other_content() -> None:
    cache = PrefixCache(4, 2)
    cache.insert(b"x", 1)
    cache.evict(1)
    assert cache.find(b"x") is None
    cache.evict(1)
    assert cache.insert(b"y", 1) and cache.find(b"y") == 1
    cache.check_integrity()


def test_one_block_cannot_be_found_under_two_digests() -> None:
    cache = PrefixCache(4, 2)
    cache.insert(b"x", 1)
    with pytest.raises(AssertionError, match="under another digest"):
        cache.insert(b"y", 1)
