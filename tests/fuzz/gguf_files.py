"""Damaged GGUF files, each a function of a seed; a fourth each: keys with any value, keys nearly right, tensors, bytes.

Most damage is refused by the first reader that sees it. So the second and third kind change one thing and keep the rest true to
it: such a file gets as far as the tokenizer, the template, the decoders of blocks and the models.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.fuzz.mutations import (
    HEADS,
    HIDDEN,
    INNER,
    LAYERS,
    NUMBERS,
    TEMPLATE,
    TEMPLATES,
    TOKENS,
    VOCAB,
    damage_bytes,
    tensors,
)

Keys = dict[str, tuple[str, Any]]
"""Key -> (type, value)."""

_CODES = {"u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f"), "bool": (7, "?")}
_CODES |= {"u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d")}
_BLOCKS = {"q4_0": (2, 18), "q4_1": (3, 20), "q5_0": (6, 22), "q5_1": (7, 24), "q8_0": (8, 34)}
"""Format -> (number, bytes of a block of 32)."""
_NAMES = {
    **{"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate"},
    **{
        "up_proj": "ffn_up",
        "down_proj": "ffn_down",
        "qkv_proj": "attn_qkv",
        "gate_up_proj": "ffn_up",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    },
}
_TEXTS = ["", " ", "a", "\u2581", "\ud800", "<s>", "a b c", "\u2581\u2581", "<0x41>", "\U0001f600", "\u0000", "e\u0301"]
_PRE = ["gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "smollm", "gpt-4o", "tekken", "default", "mpt", "bloom", "viking"]
_SOUND_TEMPLATES = [
    "{{ bos_token }}{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] | trim }}</s>{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ m.content }}{% endfor %}",
    "{% for m in messages %}{{ m | tojson }}{% endfor %}{% if add_generation_prompt %}<|im_end|>{% endif %}",
    "{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}",
    "{{ messages[0].content * 20000 }}",
    "{{ strftime_now('%d %b %Y') }}{{ messages[-1]['content'][::-1] }}",
    "{% if messages|length > 5 %}x{% else %}{{ messages[9].content }}{% endif %}",
    "{{ '\u0000' }}{{ '\ud7ff' }}{{ messages }}",
]


@dataclass
class _Tensor:
    """One tensor as it will be written. shape is in GGUF's order."""

    name: str
    shape: list[int]
    type_id: int
    content: bytes
    offset: int | None = None


def gguf_bytes(seed: int) -> bytes:
    """A damaged GGUF file."""
    rng = random.Random(f"gguf {seed}")
    keys = gguf_keys(rng.choice(["llama", "llama", "gpt2", "gpt2", "t5", "bert"]))
    is_phi3 = rng.random() < 0.3
    stored = _sound_tensors(is_phi3)
    kind = seed % 4
    if kind == 0:
        for _ in range(rng.randint(1, 3)):
            _damage_key(keys, rng)
    elif kind == 1:
        for change in rng.sample(_KEY_CHANGES, rng.randint(1, 3)):
            change(keys, rng)
    elif kind == 2:
        for change_tensors in rng.sample(_TENSOR_CHANGES, rng.randint(1, 2)):
            change_tensors(stored, keys, rng)
    content, head_bytes = _file_bytes(_of_phi3(keys) if is_phi3 else keys, stored)
    if kind == 3:
        return damage_bytes(content, rng, rng.choice([head_bytes, 600, len(content), len(content)]))
    return content + rng.randbytes(rng.choice([0, 0, 1, 33]))


def gguf_keys(model: str) -> Keys:
    """Those of a sound file, for one kind of tokenizer."""
    head = {"block_count": LAYERS, "context_length": 256, "embedding_length": HIDDEN, "feed_forward_length": INNER}
    keys: Keys = {"general.architecture": ("str", "llama"), "general.name": ("str", "fuzz")}
    keys |= {f"llama.{name}": ("u32", value) for name, value in head.items()}
    keys["llama.attention.head_count"] = ("u32", HEADS)
    keys["llama.attention.layer_norm_rms_epsilon"] = ("f32", 1e-5)
    keys["tokenizer.ggml.model"] = ("str", model)
    keys["tokenizer.ggml.pre"] = ("str", "gpt-2")
    keys["tokenizer.ggml.tokens"] = ("[str", TOKENS)
    keys["tokenizer.ggml.scores"] = ("[f32", [-float(index) for index in range(VOCAB)])
    keys["tokenizer.ggml.token_type"] = ("[i32", [2, 3, 3, 3, *[6] * 256, *[1] * (VOCAB - 260)])
    keys["tokenizer.ggml.merges"] = ("[str", ["a b"])
    keys |= {f"tokenizer.ggml.{name}_token_id": ("u32", value) for name, value in (("bos", 1), ("eos", 2), ("unknown", 0))}
    keys["tokenizer.chat_template"] = ("str", TEMPLATE)
    return keys


def _of_phi3(keys: Keys) -> Keys:
    """The same under the names that Phi-3 has; its tensors hold several weights each."""
    renamed = {f"phi3.{name[6:]}" if name.startswith("llama.") else name: pair for name, pair in keys.items()}
    if keys.get("general.architecture") == ("str", "llama"):
        renamed["general.architecture"] = ("str", "phi3")
    return renamed


# Keys: any value


def _damage_key(keys: Keys, rng: random.Random) -> None:
    name = rng.choice([*keys, "llama.rope.scaling.type", "llama.rope.freq_base", "llama.attention.sliding_window", "x.y"])
    kind, value = keys.get(name, ("u32", 1))
    what = rng.choice(["drop", "number", "text", "list", "entry", "repeat", "shorten", "long", "charsmap"])
    if what == "drop":
        keys.pop(name, None)
    elif what == "number":
        kind = rng.choice(list(_CODES))
        keys[name] = (kind, rng.choice([0.0, -1.0, 1e30, float("nan")]) if kind[0] == "f" else rng.choice(NUMBERS))
    elif what == "text":
        keys[name] = ("str", rng.choice(["", "x", "yarn", "longrope", "t5", "llama", "a" * 70_000, *TEMPLATES]))
    elif what == "list":
        keys[name] = ("[i32", [rng.choice(NUMBERS) for _ in range(rng.choice([0, 1, LAYERS, 300]))])
    elif what == "charsmap":
        _change_charsmap(keys, rng)
    elif isinstance(value, list) and value:
        items, at = list(value), rng.randrange(len(value))
        if what == "shorten":
            items = items[:at]
        elif what == "repeat":
            items = items * rng.choice([2, 50])
        elif kind == "[str":
            items[at] = "z" * rng.choice([5000, 250_000]) if what == "long" else rng.choice(_TEXTS)
        else:
            items[at] = rng.choice([0.0, float("nan"), float("inf")]) if kind == "[f32" else rng.choice(NUMBERS)
        keys[name] = (kind, items)


# Keys: nearly right


def _change_number_type(keys: Keys, rng: random.Random) -> None:
    """The same number in another type, or its neighbour."""
    name = rng.choice([name for name, (kind, _) in keys.items() if kind in _CODES])
    kind, value = rng.choice(["u8", "i8", "u16", "u32", "i32", "u64", "i64", "f32", "f64"]), keys[name][1]
    keys[name] = (kind, value if rng.random() < 0.6 or kind[0] == "f" else rng.choice([value + 1, value - 1, value * 2]))


def _change_rope(keys: Keys, rng: random.Random) -> None:
    keys["llama.rope.freq_base"] = ("f32", rng.choice([1.0, 1e4, 5e5, 1e30, 1e-30]))
    if rng.random() < 0.7:
        keys["llama.rope.scaling.type"] = ("str", rng.choice(["none", "linear", "yarn", "longrope"]))
        keys["llama.rope.scaling.factor"] = ("f32", rng.choice([1.0, 0.5, 4.0, 1e-30, 1e30]))
        keys["llama.rope.scaling.original_context_length"] = ("u32", rng.choice([1, 2, 64, 256, 2**31 - 1]))
    if rng.random() < 0.3:
        keys["llama.rope.dimension_count"] = ("u32", rng.choice([2, 4, 8, 16, 7]))


def _change_shape_keys(keys: Keys, rng: random.Random) -> None:
    name, values = rng.choice(
        [
            ("attention.head_count", [1, 2, 4, 8, 16, 32]),
            ("attention.head_count_kv", [1, 2, 4, 8]),
            ("attention.key_length", [2, 4, 8, 16, 512]),
            ("context_length", [1, 2, 15, 2**20, 2**31 - 1]),
            ("block_count", [1, 2, 3]),
            ("attention.sliding_window", [0, 1, 8, 4096, 2**31 - 1]),
            ("attention.layer_norm_rms_epsilon", [1, 2]),
            ("vocab_size", [VOCAB, VOCAB - 1, VOCAB + 1]),
        ]
    )
    keys[f"llama.{name}"] = ("u32", rng.choice(values))


def _change_tokens(keys: Keys, rng: random.Random) -> None:
    """Some pieces become others: doubles, control texts, broken bytes, long ones."""
    items = list(keys["tokenizer.ggml.tokens"][1])
    for _ in range(rng.choice([1, 3, 40])):
        items[rng.randrange(len(items))] = rng.choice([*_TEXTS, *TOKENS, "z" * 4000, "ab" * rng.randint(1, 30)])
    keys["tokenizer.ggml.tokens"] = ("[str", items)


def _change_types_and_scores(keys: Keys, rng: random.Random) -> None:
    types, scores = list(keys["tokenizer.ggml.token_type"][1]), list(keys["tokenizer.ggml.scores"][1])
    for _ in range(rng.choice([1, 5, 200])):
        types[rng.randrange(VOCAB)] = rng.randint(0, 7)
        scores[rng.randrange(VOCAB)] = rng.choice([0.0, -1e9, 1e30, -0.0, 5.5])
    keys["tokenizer.ggml.token_type"], keys["tokenizer.ggml.scores"] = ("[i32", types), ("[f32", scores)


def _change_merges(keys: Keys, rng: random.Random) -> None:
    """Merges of pieces that are there, that are not, that go round in a circle, that are no pair."""
    pieces = [*"abcdefgh", "ab", "abc", "\u2581", "\u2581a", "\u0120", "x"]
    merges = [f"{rng.choice(pieces)} {rng.choice(pieces)}" for _ in range(rng.choice([0, 1, 8, 200]))]
    if rng.random() < 0.2:
        merges.append(rng.choice(["", " ", "a", "a b c", "  "]))
    keys["tokenizer.ggml.merges"] = ("[str", merges)
    if rng.random() < 0.6:  # the results of the merges are pieces, too
        tokens = list(keys["tokenizer.ggml.tokens"][1])
        for at, merge in zip(range(4, VOCAB), merges, strict=False):
            tokens[at] = merge.replace(" ", "")
        keys["tokenizer.ggml.tokens"] = ("[str", tokens)


def _change_ids_and_flags(keys: Keys, rng: random.Random) -> None:
    for name in ("bos", "eos", "unknown", "padding", "eot", "eom", "cls", "seperator", "mask"):
        if rng.random() < 0.5:
            kind, value = rng.choice([("u32", rng.randrange(VOCAB)), ("i32", -1), ("u32", VOCAB), ("u32", 2**32 - 1)])
            keys[f"tokenizer.ggml.{name}_token_id"] = (kind, value)
    for name in ("add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces"):
        if rng.random() < 0.4:
            keys[f"tokenizer.ggml.{name}"] = ("bool", rng.random() < 0.5)


def _change_pre(keys: Keys, rng: random.Random) -> None:
    keys["tokenizer.ggml.pre"] = ("str", rng.choice(_PRE))


def _change_template(keys: Keys, rng: random.Random) -> None:
    keys["tokenizer.chat_template"] = ("str", rng.choice([*_SOUND_TEMPLATES, *_SOUND_TEMPLATES, *TEMPLATES]))
    if rng.random() < 0.3:
        keys["tokenizer.chat_template.tool_use"] = ("str", rng.choice([*_SOUND_TEMPLATES, *TEMPLATES]))
        keys["tokenizer.chat_templates"] = ("[str", ["tool_use", rng.choice(["", "x"])])


def _change_charsmap(keys: Keys, rng: random.Random) -> None:
    """A trie of random numbers, or of small ones, which point into it; then texts."""
    size = rng.choice([0, 4, 8, 64, 400])
    small = [rng.randrange(512) for _ in range(size // 4)]
    trie = rng.randbytes(size) if rng.random() < 0.5 else struct.pack(f"<{len(small)}I", *small)
    texts = rng.choice([b"", b"a\0b\0", rng.randbytes(50), b"\xff\xfe\0", b"x" * 300 + b"\0"])
    keys["tokenizer.ggml.precompiled_charsmap"] = ("[u8", [*struct.pack("<I", rng.choice([size, size, 4, 400])), *trie, *texts])


_KEY_CHANGES: list[Callable[[Keys, random.Random], None]] = [
    *(_change_number_type, _change_rope, _change_shape_keys, _change_tokens, _change_types_and_scores, _change_merges),
    *(_change_ids_and_flags, _change_pre, _change_template, _change_charsmap),
]


# Tensors


def _sound_tensors(phi3: bool) -> list[_Tensor]:
    result = []
    for name, array in tensors(phi3).items():
        part = name.split(".")
        short = {"embed_tokens": "token_embd.weight"}.get(part[1], "output_norm.weight")
        if len(part) > 3:
            short = f"blk.{part[2]}.{_NAMES[part[-2]]}.weight"
        result.append(_Tensor(short, [int(extent) for extent in reversed(array.shape)], 0, array.tobytes()))
    return result


def _encode(stored: list[_Tensor], keys: Keys, rng: random.Random) -> None:
    """Some matrices in another format, of the right length: random blocks, whose scales may be huge, tiny or no number."""
    for tensor in rng.sample(stored, rng.choice([1, 4, len(stored)])):
        count = len(tensor.content) // 4
        if len(tensor.shape) != 2 or rng.random() < 0.2:
            dtype, tensor.type_id = rng.choice([(np.float16, 1), (np.float32, 0)])
            tensor.content = np.zeros(count, dtype).tobytes()
            continue
        if tensor.shape[0] % 32:
            continue
        tensor.type_id, block_bytes = rng.choice(list(_BLOCKS.values()))
        scale = rng.choice([*[b"\x00\x2c"] * 12, b"\xff\x7b", b"\x00\x7c", b"\x01\x7e", b"\x01\x00"])
        tensor.content = b"".join(scale + rng.randbytes(block_bytes - 2) for _ in range(count // 32))


def _damage_values(stored: list[_Tensor], keys: Keys, rng: random.Random) -> None:
    """Numbers that are none, or huge."""
    for tensor in rng.sample(stored, rng.choice([1, 3])):
        values = np.frombuffer(bytearray(tensor.content), np.uint32).copy()
        for _ in range(rng.choice([1, 50])):
            values[rng.randrange(values.size)] = rng.choice([0x7F800000, 0x7FC00000, 0xFF800000, 0x7F7FFFFF, 1, 0x80000000])
        tensor.content = values.tobytes()


def _change_list(stored: list[_Tensor], keys: Keys, rng: random.Random) -> None:
    """Another order, one missing, one twice, one too many, one under another's name."""
    what = rng.choice(["order", "order", "order", "drop", "twice", "extra", "swap"])
    first, second = rng.sample(range(len(stored)), 2)
    if what == "order":
        rng.shuffle(stored)
    elif what == "drop":
        del stored[first]
    elif what == "twice":
        stored.append(stored[first])
    elif what == "extra":
        name = rng.choice(["output.weight", "rope_freqs.weight", "blk.0.attn_q.bias", "blk.9.attn_q.weight", "x", "", "\ud800"])
        shape = {"output.weight": [HIDDEN, VOCAB], "blk.0.attn_q.bias": [HIDDEN]}.get(name, [HIDDEN // HEADS // 2])
        stored.append(_Tensor(name, shape, 0, np.ones(int(np.prod(shape)), np.float32).tobytes()))
    else:
        stored[first].name, stored[second].name = stored[second].name, stored[first].name


def _change_shape(stored: list[_Tensor], keys: Keys, rng: random.Random) -> None:
    shape = rng.choice(stored).shape
    what = rng.choice(["turn", "fold", "ones", "number"])
    if what == "turn":
        shape.reverse()
    elif what == "fold" and shape[0] % 2 == 0:
        shape[:] = [shape[0] // 2, 2, *shape[1:]]
    elif what == "ones":
        shape += [1] * rng.randint(1, 4)
    else:
        shape[rng.randrange(len(shape))] = rng.choice([*NUMBERS, shape[0] + 1, shape[0] - 1]) & (2**64 - 1)


def _change_place(stored: list[_Tensor], keys: Keys, rng: random.Random) -> None:
    """Offsets that overlap, leave the file or lie between the multiples; another alignment; types that do not fit."""
    what = rng.choice(["overlap", "far", "odd", "alignment", "type"])
    if what == "alignment":
        keys["general.alignment"] = ("u32", rng.choice([0, 1, 8, 16, 32, 64, 4096, 33, 2**31]))
        return
    tensor = rng.choice(stored)
    if what == "type":
        tensor.type_id = rng.choice([1, 2, 8, 10, 12, 14, 30, 39, 99])
    else:
        tensor.offset = {"overlap": rng.choice([0, 32, 1024]), "far": rng.choice(NUMBERS) & (2**64 - 1), "odd": 4}[what]


_TENSOR_CHANGES: list[Callable[[list[_Tensor], Keys, random.Random], None]] = [
    *(_encode, _encode, _encode, _damage_values, _change_list, _change_shape, _change_place)
]


# Bytes


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(raw)) + raw


def _number(kind: str, value: Any) -> bytes:
    code = _CODES[kind][1]
    if code in "fd":
        return struct.pack("<" + code, value)
    size = struct.calcsize("<" + code)
    return bool(value).to_bytes(1, "little") if code == "?" else (int(value) % (1 << 8 * size)).to_bytes(size, "little")


def _value(kind: str, value: Any) -> bytes:
    if kind == "str":
        return struct.pack("<I", 8) + _text(value)
    if kind == "[str":
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    if kind[0] == "[":
        body = b"".join(_number(kind[1:], item) for item in value)
        return struct.pack("<IIQ", 9, _CODES[kind[1:]][0], len(value)) + body
    return struct.pack("<I", _CODES[kind][0]) + _number(kind, value)


def _file_bytes(keys: Keys, stored: list[_Tensor]) -> tuple[bytes, int]:
    """The file, and how long its header is."""
    infos, body = b"", b""
    for tensor in stored:
        offset = len(body) if tensor.offset is None else tensor.offset
        infos += _text(tensor.name) + struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        infos += struct.pack("<IQ", tensor.type_id, offset)
        body += tensor.content + b"\0" * (-len(tensor.content) % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(stored), len(keys))
    head += b"".join(_text(key) + _value(*pair) for key, pair in keys.items()) + infos
    return head + b"\0" * (-len(head) % 32) + body, len(head)
