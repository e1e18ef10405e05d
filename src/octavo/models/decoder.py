"""Decoder: the one program of all families: embedding, layers, final norm, output head if it has one.

What differs between families is in the configuration (biases, head sizes, which layers slide or are rotated, multipliers) and
in their Family (where the norms stand, what is normalised, how files pack the weights).
"""

from __future__ import annotations

from typing import Generic

from octavo.config.model import ModelConfig
from octavo.models.blocks import MLP, Attention, load_embedding, load_head, load_norm, mlp_parts
from octavo.models.experts import Experts
from octavo.models.family import Family, Names
from octavo.models.source import ParameterSource
from octavo.ops.interface import Ops, Tensor, Vector, Weight


class Layer(Generic[Weight, Vector]):
    """One decoder layer: x += norm(attention(norm(x))); x += norm(mlp(norm(x))), with those norms that the family has."""

    def __init__(self, config: ModelConfig, source: ParameterSource[Weight, Vector], layer: int, family: Family) -> None:
        def norm(names: Names | None) -> Vector | None:
            if names is None:
                return None
            name, gguf = f"model.layers.{layer}.{names.folder}", f"blk.{layer}.{names.gguf}"
            return load_norm(source, name, gguf, config.hidden_size, family.norm_offset)

        self._before_attention = norm(family.norms.before_attention)
        self._attention = Attention(config, source, layer, family)
        self._after_attention = norm(family.norms.after_attention)
        self._before_mlp = norm(family.norms.before_mlp)
        self._mlp: MLP[Weight, Vector] | Experts[Weight, Vector]
        if config.experts is None or layer in config.experts.dense_layers:
            self._mlp = MLP(config, source, mlp_parts(config, layer, family), config.mlp_bias)
        else:
            self._mlp = Experts(config, config.experts, source, layer, family.experts)
        self._after_mlp = norm(family.norms.after_mlp)
        self._norm_eps = config.norm_eps
        self._stream_eps = stream_eps(config)

    def forward(self, ops: Ops[Tensor, Weight, Vector], x: Tensor) -> Tensor:
        """x [num_tokens, hidden_size] -> same shape."""
        attended = self._attention.forward(ops, self._normalised(ops, x, self._before_attention, self._stream_eps))
        x = ops.add(x, self._normalised(ops, attended, self._after_attention, self._norm_eps))
        fed = self._mlp.forward(ops, self._normalised(ops, x, self._before_mlp, self._stream_eps))
        return ops.add(x, self._normalised(ops, fed, self._after_mlp, self._norm_eps))

    def _normalised(self, ops: Ops[Tensor, Weight, Vector], x: Tensor, norm: Vector | None, eps: float) -> Tensor:
        return x if norm is None else ops.rms_norm(x, norm, eps)


class Decoder(Generic[Weight, Vector]):
    """A whole model of a family."""

    def __init__(self, config: ModelConfig, source: ParameterSource[Weight, Vector], family: Family) -> None:
        self._embedding = load_embedding(config, source)
        self._layers = [Layer(config, source, layer, family) for layer in range(config.num_layers)]
        self._norm = load_norm(source, "model.norm", "output_norm", config.hidden_size, family.norm_offset)
        self._head = load_head(config, source) if config.has_head else None
        self._embedding_scale = config.embedding_scale / config.residual_multiplier
        self._norm_eps = stream_eps(config)
        self._logit_scale = 1.0 / config.logits_scaling
        self._final_softcap = config.final_softcap

    def forward(self, ops: Ops[Tensor, Weight, Vector]) -> Tensor | None:
        """Logits [num_logits, vocab_size] of one step, if there is a head."""
        x = ops.embedding(self._embedding, self._embedding_scale)
        for layer in self._layers:
            x = layer.forward(ops, x)
        x = ops.hidden_states(ops.rms_norm(x, self._norm, self._norm_eps))
        if self._head is None:
            return None
        x = ops.select_rows(x)
        if self._logit_scale != 1.0:
            x = ops.scale(x, self._logit_scale)
        logits = ops.linear(x, self._head)
        return logits if self._final_softcap is None else ops.softcap(logits, self._final_softcap)


def stream_eps(config: ModelConfig) -> float:
    """The epsilon of norms of the residual stream.

    Granite adds residual_multiplier * sublayer(norm(x)) to x. The stream is held divided by that multiplier instead, so that a
    sum needs no product: a norm of it gives the same with an epsilon divided by the multiplier's square.
    """
    return config.norm_eps / config.residual_multiplier**2
