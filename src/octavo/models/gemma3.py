"""Gemma 3, text (Gemma team, 2025)."""

from __future__ import annotations

from typing import Generic

from octavo.config.model import ModelConfig, RopeConfig
from octavo.models.blocks import MLP, Attention, load_embedding, load_head, load_norm
from octavo.models.source import ParameterSource
from octavo.ops.interface import Ops, Tensor, Vector, Weight

NORM_OFFSET = 1.0
"""Norm weights are stored less 1."""


class Gemma3Layer(Generic[Weight, Vector]):
    """One layer: both sublayers are normalised before and after, and then added to the residual stream."""

    def __init__(self, config: ModelConfig, source: ParameterSource[Weight, Vector], layer: int, rope: RopeConfig) -> None:
        def norm(name: str, gguf: str) -> Vector:
            return load_norm(source, f"model.layers.{layer}.{name}", f"blk.{layer}.{gguf}", config.hidden_size, NORM_OFFSET)

        self._attention_norm = norm("input_layernorm", "attn_norm")
        self._attention = Attention(config, source, layer, rope, qk_norm=True, norm_offset=NORM_OFFSET)
        self._post_attention_norm = norm("post_attention_layernorm", "post_attention_norm")
        self._mlp_norm = norm("pre_feedforward_layernorm", "ffn_norm")
        self._mlp = MLP(config, source, layer)
        self._post_mlp_norm = norm("post_feedforward_layernorm", "post_ffw_norm")
        self._norm_eps = config.norm_eps

    def forward(self, ops: Ops[Tensor, Weight, Vector], x: Tensor) -> Tensor:
        """x [num_tokens, hidden_size] -> same shape."""
        attended = self._attention.forward(ops, ops.rms_norm(x, self._attention_norm, self._norm_eps))
        x = ops.add(x, ops.rms_norm(attended, self._post_attention_norm, self._norm_eps))
        fed = self._mlp.forward(ops, ops.rms_norm(x, self._mlp_norm, self._norm_eps))
        return ops.add(x, ops.rms_norm(fed, self._post_mlp_norm, self._norm_eps))


class Gemma3ForCausalLM(Generic[Weight, Vector]):
    """Scaled embeddings, normalised heads, layers that alternate between a sliding window (local_rope) and the whole context
    (rope), soft caps on scores and logits where the configuration has them."""

    def __init__(self, config: ModelConfig, source: ParameterSource[Weight, Vector]) -> None:
        full, local = config.rope, config.local_rope or config.rope
        self._embedding = load_embedding(config, source)
        self._layers = [
            Gemma3Layer(config, source, layer, local if kind == "sliding" else full)
            for layer, kind in enumerate(config.layer_kinds or ("full",) * config.num_layers)
        ]
        self._norm = load_norm(source, "model.norm", "output_norm", config.hidden_size, NORM_OFFSET)
        self._head = load_head(config, source)
        self._embedding_scale = config.embedding_scale
        self._norm_eps = config.norm_eps
        self._final_softcap = config.final_softcap

    def forward(self, ops: Ops[Tensor, Weight, Vector]) -> Tensor:
        """Logits [num_logits, vocab_size] of one step."""
        x = ops.embedding(self._embedding, self._embedding_scale)
        for layer in self._layers:
            x = layer.forward(ops, x)
        x = ops.select_rows(ops.hidden_states(ops.rms_norm(x, self._norm, self._norm_eps)))
        logits = ops.linear(x, self._head)
        return logits if self._final_softcap is None else ops.softcap(logits, self._final_softcap)
