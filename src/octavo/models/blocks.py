"""The parts that families share: grouped-query attention and the gated MLP."""

from __future__ import annotations

from dataclasses import replace
from typing import Generic

from octavo.config.model import ModelConfig
from octavo.errors import LoadError
from octavo.loader.parameter import Location, Part
from octavo.models.family import Family
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
    """Grouped-query attention (Ainslie et al., 2023) of one layer, with rotary positions unless the layer does without them."""

    def __init__(self, config: ModelConfig, source: ParameterSource[Weight, Vector], layer: int, family: Family) -> None:
        prefix, gguf, head_dim = f"model.layers.{layer}.self_attn", f"blk.{layer}", config.head_dim
        self._q_size, self._kv_size = config.num_heads * head_dim, config.num_kv_heads * head_dim
        self._qkv = source.linear(
            qkv_parts(config, layer, family), config.hidden_size, role="attention", cut="output", bias=config.attention_bias
        )
        out = Part(f"{prefix}.o_proj", config.hidden_size, Location(f"{gguf}.attn_output"))
        self._out = source.linear([out], self._q_size, role="attention", cut="input", bias=config.attention_out_bias)
        self._q_norm: Vector | None = None
        self._k_norm: Vector | None = None
        if family.qk_norm is not None:
            q_size, k_size = (head_dim, head_dim) if family.qk_norm == "head" else (self._q_size, self._kv_size)
            self._q_norm = load_norm(source, f"{prefix}.q_norm", f"{gguf}.attn_q_norm", q_size, family.norm_offset)
            self._k_norm = load_norm(source, f"{prefix}.k_norm", f"{gguf}.attn_k_norm", k_size, family.norm_offset)
        self._norm_eps = config.norm_eps
        sliding = bool(config.layer_kinds) and config.layer_kinds[layer] == "sliding"
        rope = config.local_rope if sliding and config.local_rope is not None else config.rope
        self._rope = rope if config.is_rotated(layer) else None
        self._q_rope = rope if config.query_rope is None else config.query_rope
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
        if self._rope is not None:
            q = ops.rope(q, self._q_rope, self._spec.head_dim)
            k = ops.rope(k, self._rope, self._spec.head_dim)
        ops.kv_write(k, v, self._spec)
        return ops.linear(ops.paged_attention(q, self._spec), self._out)


def qkv_parts(config: ModelConfig, layer: int, family: Family) -> list[Part]:
    """q, k and v of one layer, each where the containers keep it."""
    prefix, gguf = f"model.layers.{layer}.self_attn", f"blk.{layer}"
    rotary = None if config.rope.rotary_dim == config.head_dim else config.rope.rotary_dim
    parts: list[Part] = []
    first_row = 0
    for name, heads in (("q", config.num_heads), ("k", config.num_kv_heads), ("v", config.num_kv_heads)):
        folder, file = Location(f"{prefix}.{name}_proj"), Location(f"{gguf}.attn_{name}")
        if family.qkv_in_folder is not None:
            folder = Location(f"{prefix}.{family.qkv_in_folder}", first_row)
        if family.qkv_in_gguf is not None:
            file = Location(f"{gguf}.{family.qkv_in_gguf}", first_row)
        if name != "v" and family.pairs_in_folder:
            folder = replace(folder, interleaved=config.head_dim, rotary=rotary)
        if name != "v" and family.pairs_in_gguf:
            file = replace(file, interleaved=config.head_dim, rotary=rotary)
        parts.append(Part(f"{prefix}.{name}_proj", heads * config.head_dim, file, folder))
        first_row += heads * config.head_dim
    return parts


class MLP(Generic[Weight, Vector]):
    """down(act(gate(x)) * up(x)) of one layer (Shazeer, 2020).

    parts   gate and up, each [inner, hidden_size], and down [hidden_size, inner]
    """

    def __init__(
        self, config: ModelConfig, source: ParameterSource[Weight, Vector], parts: tuple[Part, Part, Part], bias: bool = False
    ) -> None:
        gate, up, down = parts
        self._gate_up = source.linear([gate, up], config.hidden_size, role="mlp", cut="output", bias=bias)
        self._down = source.linear([down], gate.rows, role="mlp", cut="input", bias=bias)
        self._is_gelu = is_gelu(config)

    def forward(self, ops: Ops[Tensor, Weight, Vector], x: Tensor) -> Tensor:
        """x [num_tokens, hidden_size] -> same shape."""
        gate_up = ops.linear(x, self._gate_up)
        return ops.linear(ops.gelu_mul(gate_up) if self._is_gelu else ops.silu_mul(gate_up), self._down)


def is_gelu(config: ModelConfig) -> bool:
    """Whether gates are a GELU; else they are a SiLU. Raises: LoadError for another activation."""
    if config.hidden_act not in ("silu", "gelu_pytorch_tanh"):
        raise LoadError(f"hidden_act is {config.hidden_act!r}; supported: silu, gelu_pytorch_tanh")
    return config.hidden_act == "gelu_pytorch_tanh"


def mlp_parts(config: ModelConfig, layer: int, family: Family) -> tuple[Part, Part, Part]:
    """gate, up and down of one layer, each where the containers keep it."""
    prefix, gguf, inner = f"model.layers.{layer}", f"blk.{layer}", config.intermediate_size
    parts: list[Part] = []
    for index, name in enumerate(("gate", "up")):
        folder, file = Location(f"{prefix}.mlp.{name}_proj"), Location(f"{gguf}.ffn_{name}")
        if family.gate_up_in_folder is not None:
            folder = Location(f"{prefix}.{family.gate_up_in_folder}", index * inner)
        if family.gate_up_in_gguf is not None:
            file = Location(f"{gguf}.{family.gate_up_in_gguf}", index * inner)
        parts.append(Part(f"{prefix}.mlp.{name}_proj", inner, file, folder))
    down_file, down_folder = Location(f"{gguf}.{family.down.gguf}"), Location(f"{prefix}.{family.down.folder}")
    return parts[0], parts[1], Part(f"{prefix}.mlp.down_proj", config.hidden_size, down_file, down_folder)
