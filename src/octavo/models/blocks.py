"""The parts that families share: grouped-query attention and the gated MLP."""

from __future__ import annotations

from typing import Generic

from octavo.config.model import ModelConfig, RopeConfig
from octavo.errors import LoadError
from octavo.models.parameters import ParameterSource
from octavo.ops.interface import AttentionSpec, Ops, Tensor, Vector, Weight


def load_embedding(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Weight:
    """The token embedding [vocab_size, hidden_size]."""
    return source.linear(["model.embed_tokens"], [config.vocab_size], config.hidden_size)


def load_head(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Weight:
    """The output head [vocab_size, hidden_size]; with tied embeddings it is the embedding's own Weight."""
    if config.tie_embeddings:
        return load_embedding(config, source)
    return source.linear(["lm_head"], [config.vocab_size], config.hidden_size)


class Attention(Generic[Weight, Vector]):
    """Grouped-query attention (Ainslie et al., 2023) of one layer, with rotary positions.

    rope         of this layer
    qk_norm      normalise each head of q and k by weights q_norm and k_norm (Qwen 3, Gemma 3)
    norm_offset  added to those weights (Gemma stores them less 1)
    """

    def __init__(
        self,
        config: ModelConfig,
        source: ParameterSource[Weight, Vector],
        layer: int,
        rope: RopeConfig,
        *,
        qk_norm: bool = False,
        norm_offset: float = 0.0,
    ) -> None:
        prefix = f"model.layers.{layer}.self_attn"
        self._q_size, self._kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self._qkv = source.linear(
            [f"{prefix}.q_proj", f"{prefix}.k_proj", f"{prefix}.v_proj"],
            [self._q_size, self._kv_size, self._kv_size],
            config.hidden_size,
            bias=config.attention_bias,
        )
        self._out = source.linear([f"{prefix}.o_proj"], [config.hidden_size], self._q_size, bias=config.attention_out_bias)
        self._q_norm = source.vector(f"{prefix}.q_norm", config.head_dim, norm_offset) if qk_norm else None
        self._k_norm = source.vector(f"{prefix}.k_norm", config.head_dim, norm_offset) if qk_norm else None
        self._norm_eps = config.norm_eps
        self._rope = rope
        sliding = bool(config.layer_kinds) and config.layer_kinds[layer] == "sliding"
        self._spec = AttentionSpec(
            layer=layer,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            scale=config.query_scale,
            window=config.sliding_window if sliding else None,
            softcap=config.attn_softcap,
        )

    def forward(self, ops: Ops[Tensor, Weight, Vector], x: Tensor) -> Tensor:
        """x [num_tokens, hidden_size] -> same shape; writes the step's keys and values."""
        q, k, v = ops.split(ops.linear(x, self._qkv), [self._q_size, self._kv_size, self._kv_size])
        if self._q_norm is not None and self._k_norm is not None:
            q = ops.rms_norm(q, self._q_norm, self._norm_eps)
            k = ops.rms_norm(k, self._k_norm, self._norm_eps)
        q = ops.rope(q, self._rope, self._spec.head_dim)
        k = ops.rope(k, self._rope, self._spec.head_dim)
        ops.kv_write(k, v, self._spec)
        return ops.linear(ops.paged_attention(q, self._spec), self._out)


class MLP(Generic[Weight, Vector]):
    """down(act(gate(x)) * up(x)) of one layer (Shazeer, 2020)."""

    def __init__(self, config: ModelConfig, source: ParameterSource[Weight, Vector], layer: int) -> None:
        if config.hidden_act not in ("silu", "gelu_pytorch_tanh"):
            raise LoadError(f"hidden_act is {config.hidden_act!r}; supported: silu, gelu_pytorch_tanh")
        prefix = f"model.layers.{layer}.mlp"
        inner = config.intermediate_size
        self._gate_up = source.linear(
            [f"{prefix}.gate_proj", f"{prefix}.up_proj"], [inner, inner], config.hidden_size, bias=config.mlp_bias
        )
        self._down = source.linear([f"{prefix}.down_proj"], [config.hidden_size], inner, bias=config.mlp_bias)
        self._is_gelu = config.hidden_act == "gelu_pytorch_tanh"

    def forward(self, ops: Ops[Tensor, Weight, Vector], x: Tensor) -> Tensor:
        """x [num_tokens, hidden_size] -> same shape."""
        gate_up = ops.linear(x, self._gate_up)
        return ops.linear(ops.gelu_mul(gate_up) if self._is_gelu else ops.silu_mul(gate_up), self._down)


class PreNormLayer(Generic[Weight, Vector]):
    """One decoder layer of Llama's shape: x += attention(norm(x)); x += mlp(norm(x))."""

    def __init__(
        self,
        config: ModelConfig,
        source: ParameterSource[Weight, Vector],
        layer: int,
        rope: RopeConfig,
        *,
        qk_norm: bool = False,
    ) -> None:
        prefix = f"model.layers.{layer}"
        self._attention_norm = source.vector(f"{prefix}.input_layernorm", config.hidden_size)
        self._attention = Attention(config, source, layer, rope, qk_norm=qk_norm)
        self._mlp_norm = source.vector(f"{prefix}.post_attention_layernorm", config.hidden_size)
        self._mlp = MLP(config, source, layer)
        self._norm_eps = config.norm_eps

    def forward(self, ops: Ops[Tensor, Weight, Vector], x: Tensor) -> Tensor:
        """x [num_tokens, hidden_size] -> same shape."""
        x = ops.add(x, self._attention.forward(ops, ops.rms_norm(x, self._attention_norm, self._norm_eps)))
        return ops.add(x, self._mlp.forward(ops, ops.rms_norm(x, self._mlp_norm, self._norm_eps)))


class PreNormDecoder(Generic[Weight, Vector]):
    """A whole model of Llama's shape: embedding, PreNormLayers, final norm, output head.

    qk_norm   as in Attention
    """

    def __init__(self, config: ModelConfig, source: ParameterSource[Weight, Vector], *, qk_norm: bool = False) -> None:
        self._embedding = load_embedding(config, source)
        self._layers = [PreNormLayer(config, source, layer, config.rope, qk_norm=qk_norm) for layer in range(config.num_layers)]
        self._norm = source.vector("model.norm", config.hidden_size)
        self._head = load_head(config, source)
        self._norm_eps = config.norm_eps

    def forward(self, ops: Ops[Tensor, Weight, Vector]) -> Tensor:
        """Logits [num_logits, vocab_size] of one step."""
        x = ops.embedding(self._embedding)
        for layer in self._layers:
            x = layer.forward(ops, x)
        x = ops.rms_norm(ops.select_rows(x), self._norm, self._norm_eps)
        return ops.linear(x, self._head)
