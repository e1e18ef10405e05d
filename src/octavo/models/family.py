"""Family: what a family of decoders does that no number of its configuration says, and how its files name and pack weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Names(NamedTuple):
    """A tensor's names in a folder and in a GGUF file, within a layer and without ".weight"."""

    folder: str
    gguf: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorms:
    """The norms around the two sublayers of a layer; None: there is none at that place. What comes after a sublayer is added to
    the residual stream."""

    before_attention: Names | None = None
    after_attention: Names | None = None
    before_mlp: Names | None = None
    after_mlp: Names | None = None


NORMS_BEFORE = LayerNorms(
    before_attention=Names("input_layernorm", "attn_norm"), before_mlp=Names("post_attention_layernorm", "ffn_norm")
)
"""As in Llama."""
NORMS_AFTER = LayerNorms(
    after_attention=Names("post_attention_layernorm", "post_attention_norm"),
    after_mlp=Names("post_feedforward_layernorm", "post_ffw_norm"),
)
"""As in OLMo 2."""
NORMS_AROUND = LayerNorms(
    before_attention=Names("input_layernorm", "attn_norm"),
    after_attention=Names("post_attention_layernorm", "post_attention_norm"),
    before_mlp=Names("pre_feedforward_layernorm", "ffn_norm"),
    after_mlp=Names("post_feedforward_layernorm", "post_ffw_norm"),
)
"""As in Gemma 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertNames:
    """Where folders keep a mixture of experts, within a layer and without ".weight". GGUF files have one stack of all experts
    for each of gate, up and down.

    router           the matrix [experts, hidden_size]
    gate, up, down   of one expert, with {} for its number
    gate_up          None, or the stack of gate and up of all experts, those of one expert one under the other; `down` is
                     a stack then, too
    shared_gate_up, shared_down   of the MLP that every token goes to; one name twice: gate and up are one tensor
    shared_gate      the matrix [1, hidden_size] that weights it
    """

    router: str = "mlp.gate"
    gate: str = "mlp.experts.{}.gate_proj"
    up: str = "mlp.experts.{}.up_proj"
    down: str = "mlp.experts.{}.down_proj"
    gate_up: str | None = None
    shared_gate_up: tuple[str, str] = ("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj")
    shared_down: str = "mlp.shared_expert.down_proj"
    shared_gate: str = "mlp.shared_expert_gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """norms             of a layer
    norm_offset       added to every norm's weight (Gemma stores them less 1)
    qk_norm           q and k are normalised before they are rotated: each head by a weight of a head's size, or all heads
                      together by a weight of their whole width
    pairs_in_folder, pairs_in_gguf   the file holds the rotated rows of q and k in pairs, for a rope on neighbours
    qkv_in_folder, qkv_in_gguf, gate_up_in_folder, gate_up_in_gguf   the tensor that has q, k, v or gate, up one under the
                      other; None where they are apart
    down              names of the MLP's second matrix
    experts           names of a mixture of experts, where the configuration has one
    """

    norms: LayerNorms = NORMS_BEFORE
    norm_offset: float = 0.0
    qk_norm: Literal["head", "whole"] | None = None
    pairs_in_folder: bool = False
    pairs_in_gguf: bool = False
    qkv_in_folder: str | None = None
    qkv_in_gguf: str | None = None
    gate_up_in_folder: str | None = None
    gate_up_in_gguf: str | None = None
    down: Names = Names("mlp.down_proj", "ffn_down")
    experts: ExpertNames = ExpertNames()
