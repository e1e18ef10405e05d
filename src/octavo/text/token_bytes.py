"""What bytes a token contributes to the output: the decoder of a tokenizer, taken apart so that it works token by token.

The `tokenizers` library decodes whole sequences to str, which loses the bytes of incomplete characters. Here the decoder's
JSON description is read once into `DecoderRules`; then every token has exact bytes and a sequence is their concatenation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from octavo.errors import LoadError

SPACE_MARK = "\u2581"
"""SentencePiece writes a space as this character."""

LeadingSpace = Literal["keep", "strip_one", "strip_first_token"]

_IGNORED_STEPS = frozenset({"Fuse"})


@dataclass(frozen=True, slots=True)
class DecoderRules:
    """How token text becomes bytes.

    byte_level     undo GPT-2's byte alphabet (Radford et al., 2019)
    byte_fallback  "<0x0A>" is the byte 0x0A (SentencePiece)
    replacements   (old, new) pairs applied to the token text in order
    separator      put before every token; with "strip_one" it stands between them
    continuation   tokens that begin with it have none before them, and lose it (WordPiece); "": there are no such tokens
    leading_space  "strip_one": one space at the start of a sequence goes (decoder step Strip); "strip_first_token": all
                   marks of the first token go (decoder step Metaspace); "keep": nothing is removed
    """

    byte_level: bool = False
    byte_fallback: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    separator: str = ""
    continuation: str = ""
    leading_space: LeadingSpace = "keep"


def gpt2_byte_alphabet() -> dict[str, int]:
    """Character of the GPT-2 alphabet -> byte: printable Latin-1 stands for itself, the other 68 bytes for U+0100 and up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet


_BYTE_OF_CHAR = gpt2_byte_alphabet()


def parse_decoder(description: dict[str, Any] | None, source: str) -> DecoderRules:
    """Read a `tokenizers` decoder description (its JSON form); LoadError names a step that cannot work token by token."""
    if description is None:  # then the library joins the tokens with spaces
        return DecoderRules(separator=" ", leading_space="strip_one")
    steps = description["decoders"] if description.get("type") == "Sequence" else [description]
    byte_level = byte_fallback = False
    continuation = ""
    replacements: list[tuple[str, str]] = []
    leading: LeadingSpace = "keep"
    for step in steps:
        kind = step.get("type")
        if kind == "ByteLevel":
            byte_level = True
        elif kind == "ByteFallback":
            byte_fallback = True
        elif kind == "Replace" and "String" in step.get("pattern", {}):
            replacements.append((step["pattern"]["String"], step["content"]))
        elif kind == "Strip" and step.get("content") == " " and step.get("start") in (0, 1) and step.get("stop") == 0:
            leading = "strip_one" if step["start"] == 1 else leading
        elif kind == "Metaspace" and step.get("replacement") == SPACE_MARK:
            replacements.append((SPACE_MARK, " "))
            leading = "keep" if step.get("prepend_scheme") == "never" else "strip_first_token"
        elif kind == "WordPiece" and isinstance(step.get("prefix"), str) and step["prefix"]:
            continuation, leading = step["prefix"], "strip_one"
        elif kind not in _IGNORED_STEPS:
            raise LoadError(
                f"{source}: decoder step {json.dumps(step)[:200]} is not supported; "
                "known steps: ByteLevel, ByteFallback, Replace (string), Strip (one leading space), Metaspace, WordPiece, Fuse"
            )
    separator = " " if continuation else ""
    return DecoderRules(byte_level, byte_fallback, tuple(replacements), separator, continuation, leading)


def bytes_of_token(text: str, rules: DecoderRules, is_added: bool) -> bytes:
    """The bytes of one token by its vocabulary text. Added tokens are never spelled in the byte alphabet or as byte tokens."""
    if not is_added:
        if rules.byte_level:
            try:
                return bytes([_BYTE_OF_CHAR[char] for char in text])
            except KeyError:
                return text.encode("utf-8", "replace")
        if rules.byte_fallback and len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            try:
                return bytes.fromhex(text[3:5])
            except ValueError:
                pass
    if rules.continuation and text.startswith(rules.continuation) and not is_added:
        return text.removeprefix(rules.continuation).encode("utf-8", "replace")
    for old, new in rules.replacements:
        text = text.replace(old, new)
    return (rules.separator + text).encode("utf-8", "replace")
