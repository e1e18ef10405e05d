"""Llama 1 to 3 (Touvron et al., 2023; Dubey et al., 2024) and the families of its shape: Mistral, Qwen 2 and 3, SmolLM2.

What differs between them is in the configuration: biases, head sizes, which layers slide, the rope's scaling.
"""

from __future__ import annotations

from typing import Generic

from octavo.config.model import ModelConfig, RopeConfig
from octavo.models.blocks import MLP, Attention, load_embedding, load_head, load_norm
from octavo.models.source import ParameterSource
from octavo.ops.interface import Ops, Tensor, Vector, Weight


class Layer(Generic[Weight, Vector]):
    """One decoder layer: x += attention(norm(x)); x += mlp(norm(x)). The switches are those of Attention."""

    def __init__(
        self,
        config: ModelConfig,
        source: ParameterSource[Weight, Vector],
        layer: int,
        rope: RopeConfig,
        *,
        qk_norm: bool,
        gguf_interleaved: bool,
    ) -> None:
        prefix, gguf, hidden = f"model.layers.{layer}", f"blk.{layer}", config.hidden_size
        self._attention_norm = load_norm(source, f"{prefix}.input_layernorm", f"{gguf}.attn_norm", hidden)
        self._attention = Attention(config, source, layer, rope, qk_norm=qk_norm, gguf_interleaved=gguf_interleaved)
        self._mlp_norm = load_norm(source, f"{prefix}.post_attention_layernorm", f"{gguf}.ffn_norm", hidden)
        self._mlp = MLP(config, source, layer)
        self._norm_eps = config.norm_eps

    def forward(self, ops: Ops[Tensor, Weight, Vector], x: Tensor) -> Tensor:
        """x [num_tokens, hidden_size] -> same shape."""
        x = ops.add(x, self._attention.forward(ops, ops.rms_norm(x, self._attention_norm, self._norm_eps)))
        return ops.add(x, self._mlp.forward(ops, ops.rms_norm(x, self._mlp_norm, self._norm_eps)))


class Decoder(Generic[Weight, Vector]):
    """A whole model: embedding, layers, final norm, output head if it has one. The switches are those of Attention."""

    def __init__(
        self,
        config: ModelConfig,
        source: ParameterSource[Weight, Vector],
        *,
        qk_norm: bool = False,
        gguf_interleaved: bool = False,
    ) -> None:
        self._embedding = load_embedding(config, source)
        self._layers = [
            Layer(config, source, layer, config.rope, qk_norm=qk_norm, gguf_interleaved=gguf_interleaved)
            for layer in range(config.num_layers)
        ]
        self._norm = load_norm(source, "model.norm", "output_norm", config.hidden_size)
        self._head = load_head(config, source) if config.has_head else None
        self._norm_eps = config.norm_eps

    def forward(self, ops: Ops[Tensor, Weight, Vector]) -> Tensor | None:
        """Logits [num_logits, vocab_size] of one step, if there is a head."""
        x = ops.embedding(self._embedding)
        for layer in self._layers:
            x = layer.forward(ops, x)
        x = ops.hidden_states(ops.rms_norm(x, self._norm, self._norm_eps))
        return None if self._head is None else ops.linear(ops.select_rows(x), self._head)


def load_llama(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Llama, and Mistral (Jiang et al., 2023), whose layers all slide if the configuration has a window."""
    return Decoder(config, source, gguf_interleaved=True)


def load_qwen2(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Qwen 1.5, 2 and 2.5 (Yang et al., 2024): biases on q, k and v; upper layers may slide."""
    return Decoder(config, source)


def load_qwen3(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Qwen 3, dense (Yang et al., 2025): heads of q and k are normalised before they are rotated; upper layers may slide."""
    return Decoder(config, source, qk_norm=True)
