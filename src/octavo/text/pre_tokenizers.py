"""How each GGUF `tokenizer.ggml.pre` name cuts text into words before byte-level BPE.

A byte-level vocabulary only gives the model's own ids when words are cut as in training; a GGUF file stores just the name of
the rule. The patterns are those of the models' published tokenizer.json files; names and groups follow llama.cpp
(llama-vocab.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer


def _either(*patterns: str) -> str:
    return "|".join(patterns)


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_CJK_AND_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _either(_CONTRACTIONS, _WORD, r"\p{N}{1,3}", _SYMBOLS, _LINES_AND_SPACES)
_QWEN2 = _either(_CONTRACTIONS, _WORD, r"\p{N}", _SYMBOLS, _LINES_AND_SPACES)
_QWEN35 = _either(
    _CONTRACTIONS,
    _LEAD + r"[\p{L}\p{M}]+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    _LINES_AND_SPACES,
)
_PATH_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = _either(
    _LEAD + _UPPER + "*" + _LOWER + "+",
    _LEAD + _UPPER + "+" + _LOWER + "*",
    r"\p{N}",
    _PATH_SYMBOLS,
    _LINES_AND_SPACES,
)
_GPT4O = _either(
    _LEAD + _UPPER + "*" + _LOWER + "+" + _CONTRACTIONS + "?",
    _LEAD + _UPPER + "+" + _LOWER + "*" + _CONTRACTIONS + "?",
    r"\p{N}{1,3}",
    _PATH_SYMBOLS,
    _LINES_AND_SPACES,
)
_DEEPSEEK_V3 = _either(
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[\p{P}\p{S}]+[\r\n]*",
    _LINES_AND_SPACES,
)
_SEED_CODER = _either(_CONTRACTIONS, _WORD, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", _LINES_AND_SPACES)
_BAILING = _either(
    r"'(?i:[sdmt]|ll|ve|re)",
    r"[^\r\n\p{L}\p{N}]?+\p{L}+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{N}]++[\r\n]*",
    r"\s*[\r\n]",
    r"\s+(?!\S)",
    r"\s+",
)
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_CASED_LETTERS = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-"
    "\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-"
    "\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80"
    "-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-"
    "\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
"""Letters with upper and lower case, as DeepSeek LLM's tokenizer.json lists them."""
_DEEPSEEK_PUNCTUATION = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
_DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


@dataclass(frozen=True, slots=True)
class PreTokenizerRule:
    """patterns are applied one after another, each cutting the pieces the previous one left.

    ignore_merges  a word that is a token as a whole is that token, whatever the merges say
    adds_bos       what a file without `add_bos_token` means
    nfc            text is normalised to NFC first
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False
    nfc: bool = False


_LLAMA3_RULE = PreTokenizerRule((_LLAMA3,), ignore_merges=True, adds_bos=True)
_DIGITS_GPT2_RULE = PreTokenizerRule((r"\p{N}", _GPT2))
_DEEPSEEK_V3_RULE = PreTokenizerRule((r"\p{N}{1,3}", _CJK_AND_KANA, _DEEPSEEK_V3))
_GROUPS: tuple[tuple[str, PreTokenizerRule], ...] = (
    ("llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2", _LLAMA3_RULE),
    ("dbrx smaug-bpe chatglm-bpe", PreTokenizerRule((_LLAMA3,))),
    ("glm4 glm5", PreTokenizerRule((_LLAMA3,), ignore_merges=True)),
    ("qwen2", PreTokenizerRule((_QWEN2,), nfc=True)),
    (
        "deepseek-r1-qwen stablelm2 hunyuan solar-open megrez kormo grok-2",
        PreTokenizerRule((_QWEN2,)),
    ),
    ("qwen35", PreTokenizerRule((_QWEN35,), nfc=True)),
    (
        "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
        _DIGITS_GPT2_RULE,
    ),
    (
        "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling",
        PreTokenizerRule((_GPT2,)),
    ),
    ("deepseek-v3 hunyuan-dense joyai-llm", _DEEPSEEK_V3_RULE),
    ("tekken", PreTokenizerRule((_TEKKEN,), ignore_merges=True)),
    ("gpt-4o llama4 kanana2 minimax-m2", PreTokenizerRule((_GPT4O,))),
    ("seed-coder", PreTokenizerRule((_SEED_CODER,))),
    ("bailingmoe bailingmoe2 llada-moe", PreTokenizerRule((_BAILING,))),
    ("poro-chat bloom gpt3-finnish", PreTokenizerRule((_BLOOM,))),
    ("viking", PreTokenizerRule((_BLOOM, r"\p{N}"))),
    ("falcon", PreTokenizerRule((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"))),
    (
        "deepseek-llm",
        PreTokenizerRule(
            (
                r"[\r\n]",
                r"\s?[" + _CASED_LETTERS + "]+",
                r"\s?[" + _DEEPSEEK_PUNCTUATION + "]+",
                r"\s+$",
                _DEEPSEEK_CJK,
                r"\p{N}+",
            )
        ),
    ),
    (
        "deepseek-coder",
        PreTokenizerRule((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")),
    ),
    (
        "default",
        PreTokenizerRule((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    ),
)
PRE_TOKENIZER_RULES: dict[str, PreTokenizerRule] = {name: rule for names, rule in _GROUPS for name in names.split()}


def build_pre_tokenizer(rule: PreTokenizerRule) -> PreTokenizer:
    """The rule as a `tokenizers` pre-tokenizer that ends in the GPT-2 byte alphabet."""
    steps: list[PreTokenizer] = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(steps)
