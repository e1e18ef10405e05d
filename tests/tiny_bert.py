"""A tiny random BERT with its tokenizer, as a sentence-transformers folder, and its hidden states by numpy alone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tests.tiny_models import weight, write_folder
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from octavo.ops.arrays import F32

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "mat", "dog", "ran", "##s", "##ing", ".", "a", "b"]
PAD, UNK, CLS, SEP = range(4)
CONFIG: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": len(WORDS),
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "torch_dtype": "float32",
}


def tensor_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes as transformers saves a BertModel."""
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (CONFIG["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (CONFIG["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (CONFIG["type_vocab_size"], hidden),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}"
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes[f"{prefix}.{name}.weight"], shapes[f"{prefix}.{name}.bias"] = (hidden, hidden), (hidden,)
        shapes[f"{prefix}.intermediate.dense.weight"], shapes[f"{prefix}.intermediate.dense.bias"] = (inner, hidden), (inner,)
        shapes[f"{prefix}.output.dense.weight"], shapes[f"{prefix}.output.dense.bias"] = (hidden, inner), (hidden,)
        norms += [f"{prefix}.attention.output.LayerNorm", f"{prefix}.output.LayerNorm"]
    for name in norms:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (hidden,)
    return shapes


def tensors() -> dict[str, F32]:
    """Weights as a function of their names; those of norms lie around 1."""
    made = {name: weight(name, shape, "BertModel") for name, shape in tensor_shapes().items()}
    return {name: tensor + np.float32(1) if name.endswith("LayerNorm.weight") else tensor for name, tensor in made.items()}


def write_bert(folder: Path, pooling: str = "pooling_mode_mean_tokens", *, normalize: bool = True, **config: Any) -> Path:
    """The folder; config: other values for config.json."""
    write_folder(folder, {**CONFIG, **config}, tensors())
    backend = Backend(models.WordPiece({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", CLS), ("[SEP]", SEP)])
    backend.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"cls_token": "[CLS]", "sep_token": "[SEP]"}))
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] if normalize else [])]
    modules = [{"idx": i, "path": path, "type": f"sentence_transformers.models.{kind}"} for i, (path, kind) in enumerate(steps)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False, pooling: True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 48, **modes}))
    return folder


def hidden_states(token_ids: list[int]) -> F32:
    """The last hidden states of one text [tokens, hidden], from the paper's formulas (Devlin et al., 2019) in float64."""
    w = {name: tensor.astype(np.float64) for name, tensor in tensors().items()}
    heads, eps = CONFIG["num_attention_heads"], CONFIG["layer_norm_eps"]

    def norm(x: Any, name: str) -> Any:
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def dense(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    x = w["embeddings.word_embeddings.weight"][token_ids] + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(x + w["embeddings.position_embeddings.weight"][: len(token_ids)], "embeddings.LayerNorm")
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"encoder.layer.{layer}"
        q, k, v = (
            dense(x, f"{name}.attention.self.{part}").reshape(len(x), heads, -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        scores = np.exp(q @ k.swapaxes(1, 2) / math.sqrt(q.shape[2]))
        mixed = (scores / scores.sum(2, keepdims=True) @ v).swapaxes(0, 1).reshape(x.shape)
        x = norm(x + dense(mixed, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
        inner = dense(x, f"{name}.intermediate.dense")
        inner = inner / 2 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = norm(x + dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    result: F32 = x.astype(np.float32)
    return result


_GGUF_NAMES = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def write_bert_gguf(path: Path, pooling_type: int | None = 1) -> Path:
    """The same model as llama.cpp's converter writes it: words begin with a mark, other pieces have none."""
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_block_count(CONFIG["num_hidden_layers"])
    writer.add_context_length(CONFIG["max_position_embeddings"])
    writer.add_embedding_length(CONFIG["hidden_size"])
    writer.add_feed_forward_length(CONFIG["intermediate_size"])
    writer.add_head_count(CONFIG["num_attention_heads"])
    writer.add_layer_norm_eps(CONFIG["layer_norm_eps"])
    writer.add_causal_attention(False)
    if pooling_type is not None:
        writer.add_pooling_type(gguf.PoolingType(pooling_type))
    writer.add_tokenizer_model("bert")
    writer.add_token_list([word if i < 4 else word[2:] if word[:2] == "##" else f"▁{word}" for i, word in enumerate(WORDS)])
    writer.add_token_types([3, 3, 3, 3, *[1] * (len(WORDS) - 4)])
    for key, token_id in (("unknown", UNK), ("cls", CLS), ("seperator", SEP), ("padding", PAD)):
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", token_id)
    embeddings = {"word_embeddings": "token_embd", "position_embeddings": "position_embd", "LayerNorm": "token_embd_norm"}
    for name, tensor in tensors().items():
        stem, _, end = name.rpartition(".")
        if stem == "embeddings.token_type_embeddings":
            writer.add_tensor("token_types.weight", tensor)
        elif stem.startswith("embeddings."):
            writer.add_tensor(f"{embeddings[stem.removeprefix('embeddings.')]}.{end}", tensor)
        else:
            _, _, layer, own = stem.split(".", 3)
            writer.add_tensor(f"blk.{layer}.{_GGUF_NAMES[own]}.{end}", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
