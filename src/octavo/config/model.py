"""ModelConfig: what a checkpoint says about itself, in one vocabulary for Hugging Face folders and GGUF files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.pooling_params import PoolingKind

LayerKind = Literal["full", "sliding"]
RopeKind = Literal["default", "linear", "dynamic", "llama3", "yarn", "longrope"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary position embedding (Su et al., 2021) and its scalings. Rotation is always of the half-split (NeoX) kind.

    kind                  linear (positions / factor), dynamic (NTK by length), llama3, yarn (Peng et al., 2023), longrope
    theta                 base of the frequencies
    rotary_dim            dimensions that are rotated; the rest of the head passes through
    factor, low_freq_factor, high_freq_factor, original_max_position, beta_fast, beta_slow, attention_factor,
    short_factors, long_factors   as in transformers' rope_parameters
    frequency_divisors    GGUF `rope_freqs.weight`: each inverse frequency is divided by it; None when absent
    temperature           cosines and sines grow with the position, in steps of original_max_position: times
                          1 + temperature * log(1 + position // original_max_position). For queries (Ministral 3)
    """

    kind: RopeKind = "default"
    theta: float = 10000.0
    rotary_dim: int
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    truncate: bool = True
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    frequency_divisors: tuple[float, ...] | None = None
    temperature: float = 0.0

    def longest_short_prompt(self, max_model_len: int) -> int | None:
        """longrope with a context beyond the original one: prompts of up to this many tokens are computed with the short
        factors, longer ones with the long factors, each with all that follows. None: all are computed alike."""
        original = self.original_max_position
        return original if self.kind == "longrope" and original is not None and max_model_len > original else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingConfig:
    """How a prompt's last hidden states become its embedding. normalize: divide it by its length, unless asked otherwise."""

    kind: PoolingKind = "last"
    normalize: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedFolder:
    """A folder whose matrices are quantised: loader/quantised_folder.py.

    method           "awq", "gptq", "compressed-tensors" or "fp8"
    zeros_less_one   GPTQ: zero points are stored less 1, as its first version does
    group_size       columns that share a scale; None: the arrays say it
    block            rows and columns that share a scale of 8-bit floats
    """

    method: str
    zeros_less_one: bool = False
    group_size: int | None = None
    block: tuple[int, int] = (128, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """Layers whose MLP is a mixture of experts: each token goes to the top_k with the largest router logits.

    num_experts, top_k   experts of a layer, and how many of them a token goes to
    inner                intermediate size of an expert
    renormalise          the weights of a token's experts sum to 1; else they are the softmax over all experts
    dense_layers         layers that have one MLP of intermediate_size instead
    shared_inner         intermediate size of the expert that every token goes to besides; 0: there is none
    has_shared_gate      that expert's output is weighted by a sigmoid
    """

    num_experts: int
    top_k: int
    inner: int
    renormalise: bool
    dense_layers: tuple[int, ...] = ()
    shared_inner: int = 0
    has_shared_gate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The dimensions and switches of one model; every field is resolved, nothing is 'auto'.

    architecture      Hugging Face class name, e.g. "LlamaForCausalLM"; selects the model in models/registry.py
    head_dim          may differ from hidden_size / num_heads
    max_position      longest context the checkpoint was made for, in tokens
    layer_kinds       one entry per layer; "sliding" layers see sliding_window positions, the own one included
    local_rope        rope of sliding layers where it differs (Gemma 3)
    query_rope        rope of queries where it differs from that of keys (Ministral 3)
    rotated           one entry per layer: whether its queries and keys are rotated; empty: in all layers
    query_scale       factor on q.k; usually head_dim ** -0.5
    attn_softcap, final_softcap   cap * tanh(x / cap) on attention scores / logits; None when absent
    residual_multiplier   factor on what a sublayer adds to the residual stream (Granite)
    logits_scaling    divisor of the logits (Granite)
    embedding_scale   factor on embeddings (Gemma: sqrt(hidden_size), rounded as the checkpoint dtype rounds it)
    dtype             the checkpoint's own weight type: "float32", "bfloat16", "float16" or "gguf" (quantised blocks)
    eos_token_ids     ids that end a generation (generation_config.json wins over config.json)
    has_head          False: there is no output head, so that the model generates no text and makes embeddings alone
    causal            False: an encoder, whose tokens see each other both ways
    quantised         None: a folder's matrices are floats
    experts           None: every layer has one MLP of intermediate_size
    num_positions     rows of the table of learned positions; 0: positions are rotated (rope), else rope is not used
    num_token_types   rows of the table of token types, of which a single text uses the first; 0: there is none
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int
    norm_eps: float
    rope: RopeConfig
    hidden_act: str = "silu"
    tie_embeddings: bool = False
    attention_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    layer_kinds: tuple[LayerKind, ...] = ()
    sliding_window: int | None = None
    local_rope: RopeConfig | None = None
    query_rope: RopeConfig | None = None
    rotated: tuple[bool, ...] = ()
    query_scale: float
    attn_softcap: float | None = None
    final_softcap: float | None = None
    embedding_scale: float = 1.0
    residual_multiplier: float = 1.0
    logits_scaling: float = 1.0
    dtype: str = "float32"
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    has_head: bool = True
    causal: bool = True
    experts: ExpertsConfig | None = None
    quantised: QuantisedFolder | None = None
    num_positions: int = 0
    num_token_types: int = 0
    pooling: PoolingConfig = PoolingConfig()

    def is_rotated(self, layer: int) -> bool:
        """Whether the layer's queries and keys are rotated."""
        return not self.rotated or self.rotated[layer]
