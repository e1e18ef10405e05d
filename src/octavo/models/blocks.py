"""The parts that families share: grouped-query attention and the gated MLP."""

from __future__ import annotations

from typing import Generic

from octavo.config.model import ModelConfig, RopeConfig
from octavo.errors import LoadError
from octavo.loader.parameter import Location, Part
from octavo.models.source import ParameterSource
from octavo.ops.interface import AttentionSpec, Ops, Tensor, Vector, Weight


def load_embedding(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Weight:
    """The token embedding [vocab_size, hidden_size]."""
    part = Part("model.embed_tokens", config.vocab_size, Location("token_embd"))
    return source.linear([part], config.hidden_size, role="embedding", cut="output")


def load_head(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Weight:
    """The output head [vocab_size, hidden_size]; with tied embeddings it is the embedding's own Weight."""
    if config.tie_embeddings:
        return load_embedding(config, source)
    part = Part("lm_head", config.vocab_size, Location("output"))
    return source.linear([part], config.hidden_size, role="head", cut="output")


def load_norm(source: ParameterSource[Weight, Vector], name: str, gguf: str, size: int, offset: float = 0.0) -> Vector:
    """The weight [size] of a norm, offset added; name and gguf are its names without ".weight"."""
    return source.vector(Part(name, size, Location(gguf)), role="norm", offset=offset)


class Attention(Generic[Weight, Vector]):
    """Grouped-query attention (Ainslie et al., 2023) of one layer, with rotary positions.

    rope               of this layer
    qk_norm            normalise each head of q and k by weights q_norm and k_norm (Qwen 3, Gemma 3)
    norm_offset        added to those weights (Gemma stores them less 1)
    gguf_interleaved   GGUF files hold the rows of q and k in pairs, for a rope on neighbours (Llama)
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
        gguf_interleaved: bool = False,
    ) -> None:
        prefix, gguf, head_dim = f"model.layers.{layer}.self_attn", f"blk.{layer}", config.head_dim
        self._q_size, self._kv_size = config.num_heads * head_dim, config.num_kv_heads * head_dim
        pairs = head_dim if gguf_interleaved else None
        self._qkv = source.linear(
            [
                Part(f"{prefix}.q_proj", self._q_size, Location(f"{gguf}.attn_q", interleaved=pairs)),
                Part(f"{prefix}.k_proj", self._kv_size, Location(f"{gguf}.attn_k", interleaved=pairs)),
                Part(f"{prefix}.v_proj", self._kv_size, Location(f"{gguf}.attn_v")),
            ],
            config.hidden_size,
            role="attention",
            cut="output",
            bias=config.attention_bias,
        )
        out = Part(f"{prefix}.o_proj", config.hidden_size, Location(f"{gguf}.attn_output"))
        self._out = source.linear([out], self._q_size, role="attention", cut="input", bias=config.attention_out_bias)
        self._q_norm: Vector | None = None
        self._k_norm: Vector | None = None
        if qk_norm:
            self._q_norm = load_norm(source, f"{prefix}.q_norm", f"{gguf}.attn_q_norm", head_dim, norm_offset)
            self._k_norm = load_norm(source, f"{prefix}.k_norm", f"{gguf}.attn_k_norm", head_dim, norm_offset)
        self._norm_eps = config.norm_eps
        self._rope = rope
        sliding = bool(config.layer_kinds) and config.layer_kinds[layer] == "sliding"
        self._spec = AttentionSpec(
            layer=layer,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=head_dim,
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
        prefix, gguf, inner = f"model.layers.{layer}.mlp", f"blk.{layer}", config.intermediate_size
        gate = Part(f"{prefix}.gate_proj", inner, Location(f"{gguf}.ffn_gate"))
        up = Part(f"{prefix}.up_proj", inner, Location(f"{gguf}.ffn_up"))
        down = Part(f"{prefix}.down_proj", config.hidden_size, Location(f"{gguf}.ffn_down"))
        self._gate_up = source.linear([gate, up], config.hidden_size, role="mlp", cut="output", bias=config.mlp_bias)
        self._down = source.linear([down], inner, role="mlp", cut="input", bias=config.mlp_bias)
        self._is_gelu = config.hidden_act == "gelu_pytorch_tanh"

    def forward(self, ops: Ops[Tensor, Weight, Vector], x: Tensor) -> Tensor:
        """x [num_tokens, hidden_size] -> same shape."""
        gate_up = ops.linear(x, self._gate_up)
        return ops.linear(ops.gelu_mul(gate_up) if self._is_gelu else ops.silu_mul(gate_up), self._down)
