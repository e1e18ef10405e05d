"""BERT's encoder (Devlin et al., 2019): MiniLM, BGE, GTE and E5 in their small and base sizes have its shape."""

from __future__ import annotations

from typing import Generic

from octavo.config.model import ModelConfig
from octavo.loader.parameter import Axis, Location, Part, Role
from octavo.models.source import ParameterSource
from octavo.ops.interface import AttentionSpec, Ops, Tensor, Vector, Weight


class LayerNorm(Generic[Weight, Vector]):
    """A norm with weight and bias; name and gguf are its names without these ends."""

    def __init__(self, config: ModelConfig, source: ParameterSource[Weight, Vector], name: str, gguf: str) -> None:
        part = Part(name, config.hidden_size, Location(gguf))
        self._weight = source.vector(part, role="norm")
        self._bias = source.vector(part, role="norm", is_bias=True)
        self._eps = config.norm_eps

    def forward(self, ops: Ops[Tensor, Weight, Vector], x: Tensor) -> Tensor:
        """x [num_tokens, hidden_size] -> same shape."""
        return ops.layer_norm(x, self._weight, self._bias, self._eps)


class BertLayer(Generic[Weight, Vector]):
    """x = norm(x + attention(x)); x = norm(x + mlp(x)). Every token sees all tokens of its text."""

    def __init__(self, config: ModelConfig, source: ParameterSource[Weight, Vector], layer: int) -> None:
        name, gguf, hidden, inner = f"encoder.layer.{layer}", f"blk.{layer}", config.hidden_size, config.intermediate_size

        def linear(names: dict[str, str], rows: int, columns: int, role: Role, cut: Axis) -> Weight:
            parts = [Part(f"{name}.{own}", rows, Location(f"{gguf}.{other}")) for own, other in names.items()]
            return source.linear(parts, columns, role=role, cut=cut, bias=True)

        heads = {f"attention.self.{word}": f"attn_{word[0]}" for word in ("query", "key", "value")}
        self._hidden_size = hidden
        self._qkv = linear(heads, hidden, hidden, "attention", "output")
        self._out = linear({"attention.output.dense": "attn_output"}, hidden, hidden, "attention", "input")
        self._attention_norm = LayerNorm(config, source, f"{name}.attention.output.LayerNorm", f"{gguf}.attn_output_norm")
        self._up = linear({"intermediate.dense": "ffn_up"}, inner, hidden, "mlp", "output")
        self._down = linear({"output.dense": "ffn_down"}, hidden, inner, "mlp", "input")
        self._output_norm = LayerNorm(config, source, f"{name}.output.LayerNorm", f"{gguf}.layer_output_norm")
        self._spec = AttentionSpec(
            layer=layer,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            scale=config.query_scale,
            causal=False,
        )

    def forward(self, ops: Ops[Tensor, Weight, Vector], x: Tensor) -> Tensor:
        """x [num_tokens, hidden_size] -> same shape; writes the step's keys and values."""
        q, k, v = ops.split(ops.linear(x, self._qkv), [self._hidden_size] * 3)
        ops.kv_write(k, v, self._spec)
        attended = ops.linear(ops.paged_attention(q, self._spec), self._out)
        x = self._attention_norm.forward(ops, ops.add(x, attended))
        fed = ops.linear(ops.gelu(ops.linear(x, self._up)), self._down)
        return self._output_norm.forward(ops, ops.add(x, fed))


class BertModel(Generic[Weight, Vector]):
    """Word, position and token type embeddings, then the layers. No pooler, no head: the hidden states are the result."""

    def __init__(self, config: ModelConfig, source: ParameterSource[Weight, Vector]) -> None:
        def table(name: str, rows: int, gguf: str) -> Weight:
            part = Part(f"embeddings.{name}", rows, Location(gguf))
            return source.linear([part], config.hidden_size, role="embedding", cut="output")

        self._words = table("word_embeddings", config.vocab_size, "token_embd")
        self._positions = table("position_embeddings", config.num_positions, "position_embd")
        self._types = table("token_type_embeddings", config.num_token_types, "token_types") if config.num_token_types else None
        self._norm = LayerNorm(config, source, "embeddings.LayerNorm", "token_embd_norm")
        self._layers = [BertLayer(config, source, layer) for layer in range(config.num_layers)]

    def forward(self, ops: Ops[Tensor, Weight, Vector]) -> None:
        """Marks the hidden states of one step; there are no logits."""
        x = ops.embedding(self._words)
        if self._types is not None:
            x = ops.add(x, ops.embedding(self._types, by="zero"))
        x = self._norm.forward(ops, ops.add(x, ops.embedding(self._positions, by="position")))
        for layer in self._layers:
            x = layer.forward(ops, x)
        ops.hidden_states(x)
