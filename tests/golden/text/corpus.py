"""The text that tokenizers are compared on: about 300 KB, made by arithmetic alone so that it is the same everywhere."""

from __future__ import annotations

from collections.abc import Callable

_WORDS = """
the of and to in is that it was for on are with as his they be at one have this from or had by hot but some what there we can
out other were all your when up use word how said an each she which do their time if will way about many then them would write
like so these her long make thing see him two has look more day could go come did my sound no most number who over know water
than call first people may down side been now find Don't we'll I'm they've CAN'T naïve café
"""
_ENGLISH = _WORDS.split()
_SENTENCES = {
    "chinese": "今天天气很好，我们去公园散步。人工智能正在改变世界！你吃饭了吗？“引号”、《书名号》……长城有二千多年的历史。龍馬",
    "korean": "안녕하세요. 오늘은 날씨가 참 좋네요! 대한민국의 수도는 서울입니다. 한글은 아름다운 문자예요? ㅋㅋㅋ ㅠㅠ 갂뷁",
    "japanese": "吾輩は猫である。名前はまだ無い。カタカナとひらがな、そして漢字。ﾊﾝｶｸ ｶﾅ ー〜「括弧」",
    "arabic": "مرحبا بالعالم، كيف حالك اليوم؟ اللغة العربية جميلةٌ جدًّا. السَّلامُ عَلَيْكُم ١٢٣٤٥ ـــ ‏نص‎",
    "hindi": "नमस्ते दुनिया। हिन्दी एक भाषा है। क्षत्रिय ज्ञान १२३ र्क",
    "thai": "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่างระหว่างคำ ๑๒๓",
    "russian": "Привет, мир! Съешь ещё этих мягких французских булок, да выпей чаю. №42 «кавычки»",
    "emoji": "👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇰🇷🇫🇷 ❤️‍🔥 🤷🏿‍♀️ ☺️ 1️⃣ 🫠 👨🏻‍💻✨ ©️ ™ ⁉️",
    "accents": "e\u0301 a\u0308o\u0302 \u1e9b\u0323 Ångström ÅNGSTRÖM ﬁnance ①②③ ½ ⅷ Ⅷ x² H₂O Ǆ ǅ İstanbul ſharp ß ẞ",
    "maths": "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β), ℕ ⊆ ℕ₀ ⊂ ℤ ⊂ ℚ ⊂ ℝ ⊂ ℂ, 𝒜𝓑𝔠 𝟘𝟙𝟚",
}
_CODE = [
    "def f(x: int) -> int:\n    return x ** 2  # square\n\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\n}\n",
    'SELECT name, COUNT(*) FROM "users" WHERE id >= 10 GROUP BY 1;\r\n',
    '<div class="a b">&lt;x&gt; <br/></div>\n',
    '{"key": [1, 2.5e-10, null, true], "s": "a\\n\\u00e9"}\n',
    "$ ls -la ~/foo | grep '^d' && echo \"$HOME\" > /dev/null 2>&1\n",
    "\\begin{equation} \\frac{a}{b} \\end{equation} % tex\n",
    "    if (a != b || c <= d && !e) { return a ? b : c; } // ok\n",
]
_PUNCTUATION = [
    "...",
    "!!!",
    "?!",
    "--",
    "—",
    "==",
    "=>",
    "::",
    "''",
    '"""',
    "/*",
    "*/",
    "//",
    "\\\\",
    "@@",
    "##",
    "$$",
    "%%",
    "^^",
    "~~",
]
_RANGES = [
    (0x20, 0x7E), (0xA1, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F),
    (0xE00, 0xE7F), (0x1100, 0x11FF), (0x2000, 0x206F), (0x2190, 0x21FF), (0x2600, 0x27BF), (0x3040, 0x30FF), (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xFE00, 0xFE0F), (0xFF00, 0xFFEF), (0x10330, 0x1034A), (0x1D400, 0x1D7FF),
    (0x1F300, 0x1FAFF), (0x20000, 0x200FF), (0xE0100, 0xE01EF),
]  # fmt: skip


class _Dice:
    """A small generator of numbers (Knuth's MMIX constants), the same on every platform and version."""

    def __init__(self, seed: int) -> None:
        self._state = seed * 2 + 1

    def below(self, limit: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % limit

    def pick(self, items: list[str]) -> str:
        return items[self.below(len(items))]

    def pick_limit(self) -> int:
        return (2, 3, 10, 70)[self.below(4)]

    def pick_control(self) -> int:
        codes: list[int] = [*range(0x20), 0x7F, *range(0x80, 0xA0), 0xAD, 0x200E, 0x2028, 0x2029, 0xFFFC, 0xFFFF]
        return codes[self.below(len(codes))]


def _many(make: Callable[[], str], size: int) -> str:
    pieces: list[str] = []
    length = 0
    while length < size:
        pieces.append(make())
        length += len(pieces[-1])
    return "".join(pieces)


def _english(dice: _Dice) -> str:
    words = [dice.pick(_ENGLISH) for _ in range(4 + dice.below(12))]
    return " ".join(words).capitalize() + dice.pick([". ", ", ", "! ", "? ", ".\n\n", "; ", ": ", " - "])


def _foreign(dice: _Dice, sentence: str) -> str:
    start = dice.below(len(sentence))
    return sentence[start : start + 1 + dice.below(30)] + dice.pick(["", " ", "\n", "  "])


def _numbers(dice: _Dice) -> str:
    digits = "".join(str(dice.below(10)) for _ in range(1 + dice.below(12)))
    return digits + dice.pick([" ", ".", ",", "", "e-", "%", "\n", "x", "٣", " $"])


def _spaces(dice: _Dice) -> str:
    kind = dice.pick([" ", " ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2003", " \n", "\n ", "\u2581", "\v", "\f", "\u0085"])
    return kind * (1 + dice.below(dice.pick_limit())) + dice.pick(["", "a", "word", "1", ".", "é", "\u4e2d"])


def _random_characters(dice: _Dice) -> str:
    low, high = _RANGES[dice.below(len(_RANGES))]
    return "".join(chr(low + dice.below(high - low + 1)) for _ in range(1 + dice.below(8))) + dice.pick(["", " ", ""])


def _controls(dice: _Dice) -> str:
    return chr(dice.pick_control()) * (1 + dice.below(3)) + dice.pick(
        ["", "a", " ", "\u0301", "\ufffd", "\ufeff", "\u200b", "\u200d"]
    )


def documents() -> dict[str, str]:
    """Name -> text, about 300 KB of UTF-8 together."""
    dice = _Dice(20240229)
    texts = {"english": _many(lambda: _english(dice), 50_000)}
    for name, sentence in _SENTENCES.items():
        texts[name] = sentence + "\n" + _many(lambda s=sentence: _foreign(dice, s), 6_000)  # type: ignore[misc]
    texts["code"] = _many(lambda: dice.pick(_CODE) + dice.pick(["", "\n", "\t", "    "]), 20_000)
    texts["numbers"] = _many(lambda: _numbers(dice), 10_000)
    texts["spaces"] = _many(lambda: _spaces(dice), 12_000)
    texts["punctuation"] = _many(lambda: dice.pick(_PUNCTUATION) + dice.pick(["", " ", "a", "\n", "é"]), 6_000)
    texts["random"] = _many(lambda: _random_characters(dice), 12_000)
    texts["controls"] = _many(lambda: _controls(dice), 6_000)
    makers = [_english, _numbers, _spaces, _random_characters, _controls]
    texts["mixed"] = _many(lambda: makers[dice.below(len(makers))](dice), 15_000)
    edges = [
        "",
        " ",
        "  ",
        "\n",
        "a",
        " a",
        "a ",
        "\u2581",
        "\u2581a",
        "''",
        "'s",
        " 's",
        "'S",
        "\u017f",
        "\ufeff",
        "\u00e9",
        "e\u0301",
    ]
    texts.update({f"edge {index}": text for index, text in enumerate(edges)})
    return texts
