"""Llama 1 to 3 (Touvron et al., 2023; Dubey et al., 2024) and what shares its shape, such as SmolLM2."""

from __future__ import annotations

from octavo.config.model import ModelConfig
from octavo.models.blocks import PreNormLayer, load_embedding, load_head
from octavo.models.parameters import ParameterSource
from octavo.ops.interface import Ops, Tensor


class LlamaForCausalLM:
    """Pre-norm decoder: grouped queries, rotary positions (every scaling), SiLU-gated MLP, biases where the config has them."""

    def __init__(self, config: ModelConfig, source: ParameterSource, max_model_len: int) -> None:
        rope = source.rope(config.rope, max_model_len)
        self._embedding = load_embedding(config, source)
        self._layers = [PreNormLayer(config, source, layer, rope) for layer in range(config.num_layers)]
        self._norm = source.vector("model.norm", config.hidden_size)
        self._head = load_head(config, source)
        self._norm_eps = config.norm_eps

    def forward(self, ops: Ops) -> Tensor:
        """Logits [num_logits, vocab_size] of one step."""
        x = ops.embedding(self._embedding)
        for layer in self._layers:
            x = layer.forward(ops, x)
        x = ops.rms_norm(ops.select_rows(x), self._norm, self._norm_eps)
        return ops.linear(x, self._head)
