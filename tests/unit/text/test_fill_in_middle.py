"""Prompts that ask for what stands between a prefix and a suffix."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.fakes import EOS, byte_backend

from octavo.text.fill_in_middle import fim_prompt, fim_token_ids
from octavo.text.tokenizer import Tokenizer, TokenizerSpec

SPEC = TokenizerSpec(source="bytes", bos_token_id=EOS, prefix_ids=(EOS,))


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"], (257, 259, 258)),
        (["<fim_prefix>", "<fim_middle>", "<fim_suffix>"], (257, 259, 258)),
        (["▁<PRE>", "▁<MID>", "▁<SUF>"], (257, 259, 258)),
        (["<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"], (258, 257, 259)),
        (["<|fim_prefix|>", "<fim_middle>", "<fim_suffix>"], None),
        ([], None),
    ],
)
def test_the_families_tokens_are_known_by_name(names: list[str], found: tuple[int, int, int] | None) -> None:
    backend = byte_backend()
    backend.add_special_tokens(names)
    assert fim_token_ids(Tokenizer(backend, SPEC)) == found


def test_the_file_goes_before_the_names_and_bos_before_all() -> None:
    tokenizer = Tokenizer(byte_backend(), replace(SPEC, fim_token_ids=(7, 8, 9)))
    fim = fim_token_ids(tokenizer)
    assert fim == (7, 8, 9)
    assert fim_prompt(tokenizer, fim, [1, 2], [3], add_special_tokens=True) == [EOS, 7, 1, 2, 8, 3, 9]
    assert fim_prompt(tokenizer, fim, [], [], add_special_tokens=False) == [7, 8, 9]
