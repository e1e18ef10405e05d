"""Bytes of single tokens under each kind of decoder."""

from __future__ import annotations

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from octavo.text.token_bytes import DecoderRules, bytes_of_token, gpt2_byte_alphabet, parse_decoder


def test_the_gpt2_alphabet_is_the_librarys() -> None:
    alphabet = gpt2_byte_alphabet()
    assert set(alphabet) == set(ByteLevel.alphabet())
    assert sorted(alphabet.values()) == list(range(256))
    assert (alphabet["\u0120"], alphabet["\u010a"], alphabet["a"]) == (0x20, 0x0A, 0x61)


@pytest.mark.parametrize(
    ("text", "rules", "is_added", "expected"),
    [
        ("\u0120hi", DecoderRules(byte_level=True), False, b" hi"),
        ("\u00f0\u0141", DecoderRules(byte_level=True), False, b"\xf0\x9f"),
        ("\u4e2d", DecoderRules(byte_level=True), False, "\u4e2d".encode()),
        ("\u00e9", DecoderRules(byte_level=True), True, "\u00e9".encode()),
        ("<0x0A>", DecoderRules(byte_fallback=True), False, b"\n"),
        ("<0x0A>", DecoderRules(byte_fallback=True), True, b"<0x0A>"),
        ("<0xZZ>", DecoderRules(byte_fallback=True), False, b"<0xZZ>"),
        ("<0x0A>", DecoderRules(), False, b"<0x0A>"),
        ("\u2581a", DecoderRules(replacements=(("\u2581", " "),)), False, b" a"),
    ],
)
def test_a_token_has_exact_bytes(text: str, rules: DecoderRules, is_added: bool, expected: bytes) -> None:
    assert bytes_of_token(text, rules, is_added) == expected


def test_metaspace_decoders_strip_the_first_token_unless_told_never() -> None:
    step = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}
    assert parse_decoder(step, "x").leading_space == "strip_first_token"
    assert parse_decoder({**step, "prepend_scheme": "never"}, "x").leading_space == "keep"


def test_no_decoder_puts_a_space_before_every_token_but_the_first() -> None:
    assert parse_decoder(None, "x") == DecoderRules(separator=" ", leading_space="strip_one")
