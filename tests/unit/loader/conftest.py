"""Builders of tiny valid checkpoints, as fixtures: tests change one thing and see what the loader says."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.checkpoints import parameter_shapes

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB, LAYERS = 64, 96, 4, 2, 16, 48, 2
TOKENS = ["<s>", "</s>", "<|im_end|>", "t", "1", *(f"t{index}" for index in range(VOCAB - 5))]

Arrays = dict[str, NDArray[np.float32]]
WriteGguf = Callable[..., Path]
WriteFolder = Callable[..., Path]


def gguf_arrays(architecture: str) -> Arrays:
    """GGUF name -> float32 values of a small model."""
    rng = np.random.default_rng(5)
    q_rows, kv_rows = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        part: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (HIDDEN,),
            "attn_q.weight": (q_rows, HIDDEN),
            "attn_k.weight": (kv_rows, HIDDEN),
            "attn_v.weight": (kv_rows, HIDDEN),
            "attn_output.weight": (HIDDEN, q_rows),
            "ffn_norm.weight": (HIDDEN,),
            "ffn_gate.weight": (INNER, HIDDEN),
            "ffn_up.weight": (INNER, HIDDEN),
            "ffn_down.weight": (HIDDEN, INNER),
        }
        if architecture == "qwen2":
            part |= {"attn_q.bias": (q_rows,), "attn_k.bias": (kv_rows,), "attn_v.bias": (kv_rows,)}
        if architecture in ("qwen3", "gemma3"):
            part |= {"attn_q_norm.weight": (HEAD_DIM,), "attn_k_norm.weight": (HEAD_DIM,)}
        if architecture == "gemma3":
            part |= {"post_attention_norm.weight": (HIDDEN,), "post_ffw_norm.weight": (HIDDEN,)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in part.items()}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def gguf_keys(architecture: str) -> dict[str, object]:
    """Metadata of the small model; int and float values."""
    keys: dict[str, object] = {
        "block_count": LAYERS,
        "context_length": 256,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    if architecture == "gemma3":
        keys["attention.sliding_window"] = 32
    return {f"{architecture}.{key}": value for key, value in keys.items()}


TOKENIZER_KEYS: dict[str, object] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
}


@pytest.fixture
def write_gguf(tmp_path: Path) -> WriteGguf:
    """write(architecture, keys={...}, arrays={...}, quantised=...): a small valid GGUF file with the given changes.

    A key or array given as None is left out.
    """

    def write(
        architecture: str = "llama",
        *,
        keys: Mapping[str, object] | None = None,
        arrays: Mapping[str, NDArray[np.float32] | None] | None = None,
        name: str = "tiny.gguf",
        quantised: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q8_0,
    ) -> Path:
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, architecture)
        for key, value in (gguf_keys(architecture) | TOKENIZER_KEYS | dict(keys or {})).items():
            if isinstance(value, str):
                writer.add_string(key, value)
            elif isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, int) and value < 0:
                writer.add_int32(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, list):
                writer.add_array(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
        writer.add_token_list(TOKENS)
        writer.add_token_merges(["t 1"])
        writer.add_token_types([3, 3, 3, *([1] * (VOCAB - 3))])
        for tensor_name, values in (gguf_arrays(architecture) | dict(arrays or {})).items():
            if values is None:
                continue
            if values.ndim == 2:
                writer.add_tensor(tensor_name, gguf.quants.quantize(values, quantised), raw_dtype=quantised)
            else:
                writer.add_tensor(tensor_name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


BASE_CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
    "bos_token_id": 0,
    "torch_dtype": "float32",
}


@pytest.fixture
def base_config() -> dict[str, object]:
    """config.json of a small Llama; change it at will."""
    return dict(BASE_CONFIG)


def safetensors_bytes(arrays: Mapping[str, NDArray[np.generic]], dtypes: Mapping[str, str] | None = None) -> bytes:
    """A .safetensors file of the arrays; `dtypes` overrides what the header says."""
    names = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64"}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, values in arrays.items():
        raw = values.tobytes()
        dtype = (dtypes or {}).get(name, names[values.dtype.name])
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@pytest.fixture
def write_folder(tmp_path: Path) -> WriteFolder:
    """write(config={...}, arrays={...}, shards=1): a small Hugging Face folder; arrays given as None are left out."""
    from octavo.loader.fields import Fields
    from octavo.loader.hf_config import model_config

    def write(
        config: Mapping[str, object] | None = None,
        *,
        arrays: Mapping[str, NDArray[np.generic] | None] | None = None,
        shards: int = 1,
    ) -> Path:
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        values = BASE_CONFIG | dict(config or {})
        (folder / "config.json").write_text(json.dumps(values))
        shapes = parameter_shapes(model_config(Fields(values, "config"), Fields({}, "generation")))
        rng = np.random.default_rng(3)
        tensors: dict[str, NDArray[np.generic]] = {
            name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
        }
        for name, replacement in (arrays or {}).items():
            tensors.pop(name, None)
            if replacement is not None:
                tensors[name] = replacement
        if shards == 1:
            (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
            return folder
        weight_map = {name: f"model-{index % shards + 1:05d}-of-{shards:05d}.safetensors" for index, name in enumerate(tensors)}
        for shard in set(weight_map.values()):
            part = {name: values for name, values in tensors.items() if weight_map[name] == shard}
            (folder / shard).write_bytes(safetensors_bytes(part))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        return folder

    return write


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What octavo logs, also after another test has set up its own logging."""
    monkeypatch.setattr(logging.getLogger("octavo"), "propagate", True)
    return caplog
