"""A GGUF file as a Hugging Face folder of float32 weights, by the `gguf` package alone: an independent reading of the file.

What converters do is undone here: Llama's q and k rows are stored for rope on neighbouring pairs, Gemma's norm weights carry an
added 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from tests import tiny_models

F32 = NDArray[np.float32]

_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NORMS = {
    "llama": {"ffn_norm": "post_attention_layernorm"},
    "gemma3": {
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}


def write(path: Path, folder: Path) -> Path:
    """Write the folder; returns it."""
    return tiny_models.write_folder(folder, *read(path))


def read(path: Path) -> tuple[dict[str, Any], dict[str, F32]]:
    """config.json and float32 tensors by Hugging Face name. Knows the llama and gemma3 architectures."""
    reader = gguf.GGUFReader(path)
    architecture = str(reader.fields["general.architecture"].contents())

    def value(key: str) -> Any:
        return reader.fields[f"{architecture}.{key}"].contents()

    hidden, heads = int(value("embedding_length")), int(value("attention.head_count"))
    config: dict[str, Any] = {
        "vocab_size": int(next(t for t in reader.tensors if t.name == "token_embd.weight").shape[1]),
        "hidden_size": hidden,
        "intermediate_size": int(value("feed_forward_length")),
        "num_hidden_layers": int(value("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(value("attention.head_count_kv")),
        "max_position_embeddings": int(value("context_length")),
        # GGUF holds the epsilon as float32: round it back to the decimal it came from.
        "rms_norm_eps": float(f"{value('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": float(value("rope.freq_base")),
        "tie_word_embeddings": True,
        "bos_token_id": int(reader.fields["tokenizer.ggml.bos_token_id"].contents()),
        "eos_token_id": int(reader.fields["tokenizer.ggml.eos_token_id"].contents()),
        "torch_dtype": "float32",
    }
    if architecture == "llama":
        config |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    else:
        config |= {
            "architectures": ["Gemma3ForCausalLM"],
            "model_type": "gemma3_text",
            "head_dim": int(value("attention.key_length")),
            "query_pre_attn_scalar": int(value("attention.key_length")),
            "sliding_window": int(value("attention.sliding_window")),
            "sliding_window_pattern": 6,
            "rope_local_base_freq": 10000.0,
            "hidden_activation": "gelu_pytorch_tanh",
        }
    tensors: dict[str, F32] = {}
    for tensor in reader.tensors:
        values = _dequantise(tensor.data, tensor.tensor_type)
        name, kind = _name(tensor.name, architecture)
        if architecture == "llama" and kind in ("attn_q", "attn_k"):
            count = heads if kind == "attn_q" else config["num_key_value_heads"]
            values = values.reshape(count, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        if architecture == "gemma3" and kind.endswith("norm"):
            values = values - np.float32(1)
        tensors[name] = values
    return config, tensors


def _dequantise(data: NDArray[Any], kind: gguf.GGMLQuantizationType) -> F32:
    """gguf.dequantize takes 16 rows at a time; blocks know no rows, so fewer and longer rows give the same values sooner."""
    if data.ndim == 1:
        return np.array(gguf.dequantize(data, kind), np.float32)
    fold = next(count for count in (64, 16, 4, 1) if data.shape[0] % count == 0)
    folded = data.reshape(data.shape[0] // fold, -1)
    return np.array(gguf.dequantize(folded, kind), np.float32).reshape(data.shape[0], -1)


def _name(name: str, architecture: str) -> tuple[str, str]:
    """Hugging Face's name and the kind: "blk.3.attn_q.weight" -> ("model.layers.3.self_attn.q_proj.weight", "attn_q")."""
    kind = name.removesuffix(".weight")
    if kind in ("token_embd", "output_norm"):
        return {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[kind], kind
    _, layer, kind = kind.split(".")
    return f"model.layers.{layer}.{(_NAMES | _NORMS[architecture])[kind]}.weight", kind
