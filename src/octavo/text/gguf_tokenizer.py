"""A tokenizer from the metadata of a GGUF file: byte-level BPE, SentencePiece BPE, unigram, WordPiece.

A GGUF file stores the vocabulary and, for the rest, names and flags that llama.cpp has code for; here they become the same
pipeline that the model's tokenizer.json describes. Source: docs/gguf.md of the ggml repository; llama-vocab.cpp of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from octavo.errors import LoadError
from octavo.loader.fields import Fields, shown
from octavo.text.gguf_merges import TokenType, merges_from_scores
from octavo.text.library_faults import is_fault, quiet_panics, reason
from octavo.text.pre_tokenizers import PRE_TOKENIZER_RULES, build_pre_tokenizer
from octavo.text.token_bytes import SPACE_MARK
from octavo.text.tokenizer import Tokenizer, TokenizerSpec
from octavo.text.vocabulary_limits import check_charsmap, check_pieces, check_scores

_T = TypeVar("_T", int, float, str)

_UNPICKABLE_SCORE = -1e6
"""Unigram score of control tokens: plain text must never be segmented into one."""

_DEFAULT_IDS = {
    "llama": {"bos": 1, "eos": 2, "unknown": 0},
    "t5": {"eos": 1, "unknown": 2, "padding": 0},
    "bert": {"cls": 101, "seperator": 102, "unknown": 100, "padding": 0},
}
_ENDS = {"bert": ("cls", "seperator")}
"""What stands before and after a text where it is not called bos and eos; the key is misspelt in the files."""
_CONTINUATION = "##"

_END_OF_TURN_TEXTS = frozenset(
    {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|endoftext|>",
        "<end_of_turn>",
        "<|end_of_text|>",
        "<|eom_id|>",
        "<EOT>",
    }
)
"""Control tokens that end a generation whatever eos_token_id says; files often name only one of several."""


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    source: str
    metadata: Mapping[str, object]
    model: str
    tokens: list[str]
    types: list[int]
    ids: dict[str, int]

    def flag(self, name: str, default: bool) -> bool:
        value = self.metadata.get(f"tokenizer.ggml.{name}", default)
        if not isinstance(value, bool):
            raise LoadError(f"{self.source}: tokenizer.ggml.{name} is {shown(value)}; it must be true or false")
        return value

    def token_id(self, name: str) -> int | None:
        """Id under tokenizer.ggml.{name}_token_id; None where it is -1 or beyond the vocabulary, which llama.cpp warns of.

        Absent, it is the id that SentencePiece gives these tokens. llama.cpp has such a default for byte-level BPE too, 11,
        which is right for one model and an ordinary word of all others.
        """
        key = f"{name}_token_id"
        if f"tokenizer.ggml.{key}" not in self.metadata:
            default = _DEFAULT_IDS.get(self.model, {}).get(name, len(self.tokens))
            return default if default < len(self.tokens) else None
        ids = Fields(self.metadata, self.source, "tokenizer.ggml.").token_ids(key, len(self.tokens))
        return ids[0] if ids else None

    def of_type(self, *wanted: TokenType) -> list[int]:
        return [i for i, kind in enumerate(self.types) if kind in wanted]


def tokenizer_from_gguf(metadata: Mapping[str, object], path: Path) -> Tokenizer:
    """Build the tokenizer that `metadata` describes; LoadError names the key that is missing, damaged or unknown."""
    source = str(path)
    model = metadata.get("tokenizer.ggml.model")
    builder = _BUILDERS.get(model) if isinstance(model, str) else None
    if builder is None or not isinstance(model, str):
        raise LoadError(f"{source}: tokenizer.ggml.model is {shown(model)}; known: {', '.join(sorted(_BUILDERS))}")
    tokens = _array(metadata, "tokenizer.ggml.tokens", str, source)
    check_pieces(tokens, f"{source}: tokenizer.ggml.tokens")
    types = [int(TokenType.NORMAL)] * len(tokens)
    if "tokenizer.ggml.token_type" in metadata:
        types = _array(metadata, "tokenizer.ggml.token_type", int, source, len(tokens))
    if model != "gpt2":
        tokens = _respell_spaces(tokens)
    vocabulary = _Vocabulary(
        source,
        metadata,
        model,
        tokens,
        types,
        {token: i for i, token in enumerate(tokens)},
    )
    try:
        with quiet_panics():
            backend, adds_bos, adds_eos = builder(vocabulary)
            _add_tokens(backend, vocabulary)
    except BaseException as error:
        if isinstance(error, LoadError) or not is_fault(error):
            raise
        raise LoadError(f"{source}: the tokenizers library cannot use its vocabulary ({reason(error)})") from None
    spec = _read_spec(
        vocabulary,
        vocabulary.flag("add_bos_token", adds_bos),
        vocabulary.flag("add_eos_token", adds_eos),
    )
    return Tokenizer(backend, spec)


def _build_byte_level(vocabulary: _Vocabulary) -> tuple[Backend, bool, bool]:
    """GPT-2's BPE over bytes; also says whether BOS and EOS are added when the file is silent."""
    name = vocabulary.metadata.get("tokenizer.ggml.pre", "default")
    rule = PRE_TOKENIZER_RULES.get(name) if isinstance(name, str) else None
    if rule is None:
        raise LoadError(
            f"{vocabulary.source}: the pre-tokenizer {shown(name)} (tokenizer.ggml.pre) is unknown; text cannot be cut as the "
            f"model learned it; known: {', '.join(sorted(PRE_TOKENIZER_RULES))}"
        )
    merges = _read_merges(vocabulary)
    try:
        bpe = models.BPE(vocab=vocabulary.ids, merges=merges, ignore_merges=rule.ignore_merges)
    except Exception as error:
        raise LoadError(
            f"{vocabulary.source}: tokenizer.ggml.merges does not fit tokenizer.ggml.tokens: {reason(error)}"
        ) from None
    backend = Backend(bpe)
    if rule.nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = build_pre_tokenizer(rule)
    backend.decoder = decoders.ByteLevel()
    return backend, rule.adds_bos, False


def _build_sentencepiece(vocabulary: _Vocabulary) -> tuple[Backend, bool, bool]:
    """SentencePiece BPE. The file has scores; the merge list that `tokenizers` needs is derived from them."""
    if "tokenizer.ggml.merges" in vocabulary.metadata:
        merges = _read_merges(vocabulary)
    else:
        scores = _array(
            vocabulary.metadata,
            "tokenizer.ggml.scores",
            float,
            vocabulary.source,
            len(vocabulary.tokens),
        )
        merges = merges_from_scores(vocabulary.tokens, vocabulary.types, scores)
    unknown = vocabulary.token_id("unknown")
    try:
        bpe = models.BPE(
            vocab=vocabulary.ids,
            merges=merges,
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=bool(vocabulary.of_type(TokenType.BYTE)),
        )
    except Exception as error:
        raise LoadError(
            f"{vocabulary.source}: tokenizer.ggml.merges does not fit tokenizer.ggml.tokens: {reason(error)}"
        ) from None
    backend = Backend(bpe)
    adds_space = vocabulary.flag("add_space_prefix", vocabulary.model == "llama")
    to_mark = normalizers.Replace(" ", SPACE_MARK)
    # As llama.cpp, and as the tokenizer.json files of Llama 2, Mistral and Phi-3: also the text after a control token gets
    # the extra space.
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE_MARK), to_mark]) if adds_space else to_mark
    backend.decoder = _mark_decoder(adds_space)
    return backend, vocabulary.model == "llama", False


def _build_unigram(vocabulary: _Vocabulary) -> tuple[Backend, bool, bool]:
    """Unigram language model (Kudo, 2018), as in T5."""
    scores = _array(
        vocabulary.metadata,
        "tokenizer.ggml.scores",
        float,
        vocabulary.source,
        len(vocabulary.tokens),
    )
    check_scores(scores, f"{vocabulary.source}: tokenizer.ggml.scores")
    plain = {TokenType.NORMAL, TokenType.USER_DEFINED}
    pieces = [
        (token, score if kind in plain else _UNPICKABLE_SCORE)
        for token, score, kind in zip(vocabulary.tokens, scores, vocabulary.types, strict=True)
    ]
    byte_fallback = bool(vocabulary.of_type(TokenType.BYTE))
    backend = Backend(models.Unigram(pieces, vocabulary.token_id("unknown"), byte_fallback))
    adds_space = vocabulary.flag("add_space_prefix", True)
    squeezes = vocabulary.flag("remove_extra_whitespaces", True)
    steps: list[normalizers.Normalizer] = []
    if "tokenizer.ggml.precompiled_charsmap" in vocabulary.metadata:
        charsmap = _array(
            vocabulary.metadata,
            "tokenizer.ggml.precompiled_charsmap",
            int,
            vocabulary.source,
        )
        steps.append(_charsmap_normalizer(charsmap, vocabulary.source))
    if squeezes:
        steps += [
            normalizers.Strip(left=True, right=True),
            normalizers.Replace(Regex(" {2,}"), SPACE_MARK),
        ]
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always" if adds_space else "never")
    backend.decoder = _mark_decoder(adds_space)
    return backend, False, True


def _build_wordpiece(vocabulary: _Vocabulary) -> tuple[Backend, bool, bool]:
    """BERT's WordPiece. The file marks the beginnings of words; the library wants the other tokens marked. Text is made lower
    case and loses its accents, as in llama.cpp: nothing in the file says whether the model wants that."""
    control = {vocabulary.tokens[i] for i in vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN)}

    def respelled(token: str) -> str:
        if token in control or (token.startswith("[") and token.endswith("]")):
            return token
        return token[1:] if token.startswith(SPACE_MARK) else _CONTINUATION + token

    unknown = vocabulary.token_id("unknown")
    if unknown is None:
        raise LoadError(f"{vocabulary.source}: tokenizer.ggml.unknown_token_id names no token; WordPiece needs one")
    ids = {respelled(token): index for index, token in enumerate(vocabulary.tokens)}
    backend = Backend(models.WordPiece(vocab=ids, unk_token=respelled(vocabulary.tokens[unknown])))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=_CONTINUATION, cleanup=False)
    return backend, True, True


_BUILDERS = {
    "gpt2": _build_byte_level,
    "llama": _build_sentencepiece,
    "gemma4": _build_sentencepiece,
    "t5": _build_unigram,
    "bert": _build_wordpiece,
}


def _mark_decoder(strips_space: bool) -> decoders.Decoder:
    steps = [
        decoders.Replace(SPACE_MARK, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if strips_space:
        steps.append(decoders.Strip(content=" ", left=1, right=0))
    return decoders.Sequence(steps)


def _charsmap_normalizer(charsmap: list[int], source: str) -> normalizers.Normalizer:
    content = bytes(byte & 0xFF for byte in charsmap)
    check_charsmap(content, f"{source}: tokenizer.ggml.precompiled_charsmap")
    try:
        return normalizers.Precompiled(content)
    except BaseException as error:
        if not is_fault(error):
            raise
        raise LoadError(f"{source}: tokenizer.ggml.precompiled_charsmap is damaged ({reason(error)})") from None


def _respell_spaces(tokens: list[str]) -> list[str]:
    """Runs of spaces with SentencePiece's mark: files hold user-defined "  " with real spaces, text arrives with marks."""
    runs = [i for i, token in enumerate(tokens) if token[:1] == " " and not token.strip(" ")]
    known = set(tokens) if runs else set()
    respelled = list(tokens)
    for i in runs:
        marked = SPACE_MARK * len(tokens[i])
        if marked not in known:
            respelled[i] = marked
    return respelled


def _add_tokens(backend: Backend, vocabulary: _Vocabulary) -> None:
    """Make control tokens and user-defined ones match whole in the text."""
    tokens = vocabulary.tokens
    special = vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN)
    backend.add_special_tokens([AddedToken(tokens[i], normalized=False, special=True) for i in special if tokens[i]])
    user_defined = vocabulary.of_type(TokenType.USER_DEFINED)
    plain = [tokens[i] for i in user_defined if tokens[i].strip(SPACE_MARK)]
    backend.add_tokens([AddedToken(token, normalized=False, special=False) for token in plain])


def _read_merges(vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    merges = []
    for index, line in enumerate(_array(vocabulary.metadata, "tokenizer.ggml.merges", str, vocabulary.source)):
        left, space, right = line.partition(" ")
        if not (left and space and right):
            raise LoadError(
                f"{vocabulary.source}: tokenizer.ggml.merges, entry {index} is {shown(line)}; expected 'left right'"
            )
        merges.append((left, right))
    return merges


def _read_spec(vocabulary: _Vocabulary, adds_bos: bool, adds_eos: bool) -> TokenizerSpec:
    bos, eos = map(vocabulary.token_id, _ENDS.get(vocabulary.model, ("bos", "eos")))
    ends = [i for i in (eos, vocabulary.token_id("eot"), vocabulary.token_id("eom")) if i is not None]
    ends += [i for i in vocabulary.of_type(TokenType.CONTROL) if vocabulary.tokens[i] in _END_OF_TURN_TEXTS]
    names = {
        "bos_token": bos,
        "eos_token": eos,
        "unk_token": vocabulary.token_id("unknown"),
    }
    names["pad_token"] = vocabulary.token_id("padding")
    templates = {
        key.removeprefix("tokenizer.chat_template").lstrip(".") or "default": value
        for key, value in vocabulary.metadata.items()
        if key.startswith("tokenizer.chat_template") and isinstance(value, str)
    }
    return TokenizerSpec(
        source=vocabulary.source,
        vocab_size=len(vocabulary.tokens),
        bos_token_id=bos,
        eos_token_ids=tuple(dict.fromkeys(ends)),
        prefix_ids=(bos,) if adds_bos and bos is not None else (),
        suffix_ids=(eos,) if adds_eos and eos is not None else (),
        special_tokens={name: vocabulary.tokens[i] for name, i in names.items() if i is not None},
        chat_templates=templates,
        fim_token_ids=_fim_token_ids(vocabulary),
    )


def _fim_token_ids(vocabulary: _Vocabulary) -> tuple[int, int, int] | None:
    """The keys of today, or those that older files have."""
    for names in (("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle")):
        prefix, suffix, middle = (vocabulary.token_id(name) for name in names)
        if prefix is not None and suffix is not None and middle is not None:
            return prefix, suffix, middle
    return None


def _array(
    metadata: Mapping[str, object],
    key: str,
    kind: type[_T],
    source: str,
    length: int | None = None,
) -> list[_T]:
    """A list of `kind` (floats may be written as integers), checked."""
    value = metadata.get(key)
    if not isinstance(value, list) or not value:
        raise LoadError(f"{source}: {key} is missing or empty; the file carries no usable tokenizer, convert the model again")
    accepted = {int, float} if kind is float else {kind}
    if not accepted.issuperset(map(type, value)):
        wrong = next(i for i, item in enumerate(value) if type(item) not in accepted)
        raise LoadError(f"{source}: {key}, entry {wrong} is {shown(value[wrong])}; expected {kind.__name__}")
    if length is not None and len(value) != length:
        raise LoadError(f"{source}: {key} has {len(value)} entries, but tokenizer.ggml.tokens has {length}")
    return value
