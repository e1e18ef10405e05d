"""Damaged model folders: each a function of a seed. Half of the damage is done to the structure, half to the bytes."""

from __future__ import annotations

import base64
import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np

LAYERS, HIDDEN, HEADS, INNER, WORDS = 2, 32, 4, 48, 60
TOKENS = [
    "<unk>",
    "<s>",
    "</s>",
    "<|im_end|>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "\u2581",
    *"abcdefgh",
    "ab",
    "\u2581a",
]
VOCAB = len(TOKENS)
NUMBERS = [0, 1, -1, 2, 3, 7, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, -(2**63)]
ODD: list[Any] = [
    *(None, True, False, "", "x", [], {}, [1], {"a": 1}, 0.5, -1.5, 1e300, float("inf"), float("nan")),
    *(10**400, "9" * 5000, "a" * 200_000, [0] * 5000, [[[[[]]]]], "\u0000", "\ufeff", "<s>", ["<s>"], {"content": "<s>"}),
]
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
TEMPLATES = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 10**9 }}",
    "{{ ''|center(10**9) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ ().__class__.__bases__ }}",
    "{% if",
    "{{ x|nonsense }}",
    "(" * 5000,
    "{{ " + "[" * 500 + "]" * 500 + " }}",
    "{{ raise_exception('no') }}",
]


def is_phi3(seed: int) -> bool:
    """Whether a seed damages a Phi-3, whose tensors hold several weights each, or a Llama."""
    return seed % 4 > 1


def tensors(phi3: bool) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Hugging Face name -> values of a small Llama, or Phi-3."""
    rng = np.random.default_rng(3)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        heads = {"qkv_proj": 3 * HIDDEN} if phi3 else dict.fromkeys(("q_proj", "k_proj", "v_proj"), HIDDEN)
        shapes |= {f"{at}self_attn.{name}.weight": (rows, HIDDEN) for name, rows in (heads | {"o_proj": HIDDEN}).items()}
        inner = {"gate_up_proj": 2 * INNER} if phi3 else dict.fromkeys(("gate_proj", "up_proj"), INNER)
        shapes |= {f"{at}mlp.{name}.weight": (rows, HIDDEN) for name, rows in inner.items()}
        shapes[f"{at}mlp.down_proj.weight"] = (HIDDEN, INNER)
        shapes |= {f"{at}{name}.weight": (HIDDEN,) for name in ("input_layernorm", "post_attention_layernorm")}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def damage_bytes(content: bytes, rng: random.Random, reach: int) -> bytes:
    """One to four small changes in the first `reach` bytes, where damage hurts most."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(max(1, min(reach, len(data))))
        kind = rng.choice(["byte", "u32", "u64", "cut", "drop", "grow", "swap"])
        if kind == "byte":
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == "u32":
            data[at : at + 4] = struct.pack("<I", rng.choice(NUMBERS) & 0xFFFFFFFF)
        elif kind == "u64":
            data[at : at + 8] = struct.pack("<Q", rng.choice(NUMBERS) & 0xFFFFFFFFFFFFFFFF)
        elif kind == "cut":
            del data[at:]
        elif kind == "drop":
            del data[at : at + rng.randint(1, 9)]
        elif kind == "grow":
            data[at:at] = rng.randbytes(rng.randint(1, 9))
        else:
            other = rng.randrange(max(1, min(reach, len(data))))
            data[at : at + 8], data[other : other + 8] = data[other : other + 8], data[at : at + 8]
    return bytes(data)


# Folders


def _tokenizers() -> tuple[dict[str, Any], dict[str, Any]]:
    """tokenizer.json as BPE and as unigram with a charsmap."""
    special = [
        {
            "id": i,
            "content": TOKENS[i],
            "special": True,
            "normalized": False,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
        }
        for i in range(4)
    ]
    charsmap = base64.b64encode(struct.pack("<I", 8) + bytes(8) + b"a\0b\0").decode()
    tokenizer: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special}
    tokenizer["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    tokenizer["pre_tokenizer"] = None
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    tokenizer["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ],
    }
    bpe = {
        "type": "BPE",
        "unk_token": "<unk>",
        "byte_fallback": True,
        "fuse_unk": True,
        "vocab": {t: i for i, t in enumerate(TOKENS)},
        "merges": [["a", "b"]],
    }
    unigram = {"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": [[t, -float(i)] for i, t in enumerate(TOKENS)]}
    charsmapped = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    return {**tokenizer, "model": bpe}, {**tokenizer, "model": unigram, "normalizer": charsmapped}


def folder_files(phi3: bool = False) -> dict[str, Any]:
    """File name -> JSON content; model.safetensors is bytes."""
    config = {
        **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN},
        **{"intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS},
        **{"max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "rope_theta": 1e4},
        **{
            "rope_scaling": {"rope_type": "yarn", "factor": 2.0},
            "eos_token_id": 2,
            "bos_token_id": 1,
            "torch_dtype": "float32",
        },
    }
    if phi3:
        scaling = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 3.0, 4.0]}
        config |= {"architectures": ["Phi3ForCausalLM"], "rope_scaling": scaling, "original_max_position_embeddings": 64}
    header, parts = {}, b""
    for name, array in tensors(phi3).items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(parts), len(parts) + array.nbytes]}
        parts += array.tobytes()
    bpe, unigram = _tokenizers()
    return {
        "config.json": config,
        "generation_config.json": {"eos_token_id": [2], "temperature": 0.5, "top_k": 20},
        "tokenizer.json": bpe,
        "unigram": unigram,
        "tokenizer_config.json": {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE, "add_bos_token": True},
        "header": header,
        "parts": parts,
    }


def damage_json(value: Any, rng: random.Random, odd: list[Any]) -> Any:
    """value with one place changed to one of `odd`, dropped or repeated; the place is found by walking down at random."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        what = rng.random()
        if what < 0.12:
            return {name: item for name, item in value.items() if name != key}
        if what < 0.2:
            return {**value, rng.choice(["x", "9" * 4000, key + "x"]): value[key]}
        return {**value, key: damage_json(value[key], rng, odd)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        what = rng.random()
        if what < 0.1:
            return value[:at]
        if what < 0.2:
            return value * 3
        return [*value[:at], damage_json(value[at], rng, odd), *value[at + 1 :]]
    return rng.choice(odd)


def write_folder(folder: Path, seed: int) -> None:
    """A damaged model folder."""
    rng = random.Random(f"folder {seed}")
    files = folder_files(is_phi3(seed))
    unigram, parts, header = files.pop("unigram"), files.pop("parts"), files.pop("header")
    if rng.random() < 0.4:
        files["tokenizer.json"] = unigram
    target = rng.choice([*files, "tokenizer.json", "header"])
    structural, odd = seed % 2 == 0, [*NUMBERS, *ODD, *TEMPLATES]
    if structural:
        for _ in range(rng.randint(1, 3)):
            if target == "header":
                header = damage_json(header, rng, odd)
            else:
                files[target] = damage_json(files[target], rng, odd)
    raw = {name: _dump(content) for name, content in files.items()}
    head = _dump(header)
    raw["model.safetensors"] = struct.pack("<Q", len(head)) + head + parts
    if not structural:
        name = "model.safetensors" if target == "header" else target
        raw[name] = damage_bytes(raw[name], rng, len(head) + 8 if target == "header" else len(raw[name]))
    for name, content in raw.items():
        (folder / name).write_bytes(content)


def write_whole_folder(folder: Path) -> None:
    """The model folder without any damage."""
    files = folder_files()
    files.pop("unigram")
    parts, head = files.pop("parts"), _dump(files.pop("header"))
    for name, content in files.items():
        (folder / name).write_bytes(_dump(content))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + parts)


def _dump(content: Any) -> bytes:
    """JSON, with integers of any length and lone surrogates."""
    return json.dumps(content, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")
