"""The families of decoders, one function each: how their layers differ from Llama's."""

from __future__ import annotations

from dataclasses import replace

from octavo.config.model import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.family import NORMS_AFTER, NORMS_AROUND, NORMS_BEFORE, ExpertNames, Family, Names
from octavo.models.source import ParameterSource
from octavo.ops.interface import Vector, Weight

GLM = Family(pairs_in_folder=True, pairs_in_gguf=True, gate_up_in_folder="mlp.gate_up_proj", gate_up_in_gguf="ffn_up")
GLM4_NORMS = replace(
    NORMS_BEFORE,
    after_attention=Names("post_self_attn_layernorm", "post_attention_norm"),
    after_mlp=Names("post_mlp_layernorm", "post_ffw_norm"),
)

MIXTRAL_NAMES = ExpertNames(
    router="block_sparse_moe.gate",
    gate="block_sparse_moe.experts.{}.w1",
    up="block_sparse_moe.experts.{}.w3",
    down="block_sparse_moe.experts.{}.w2",
)
GRANITE_NAMES = ExpertNames(
    router="block_sparse_moe.router.layer",
    gate_up="block_sparse_moe.input_linear",
    down="block_sparse_moe.output_linear",
    shared_gate_up=("shared_mlp.input_linear", "shared_mlp.input_linear"),
    shared_down="shared_mlp.output_linear",
)


def load_llama(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Llama 1 to 3 (Touvron et al., 2023; Dubey et al., 2024), SmolLM2, Mistral (Jiang et al., 2023), whose layers all slide if
    the configuration has a window, and Ministral 3, whose queries grow with the position."""
    return Decoder(config, source, Family(pairs_in_gguf=True))


def load_qwen2(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Qwen 1.5, 2 and 2.5 (Yang et al., 2024): biases on q, k and v; upper layers may slide; experts in some."""
    return Decoder(config, source, Family())


def load_qwen3(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Qwen 3 (Yang et al., 2025): heads of q and k are normalised; upper layers may slide; experts in some."""
    return Decoder(config, source, Family(qk_norm="head"))


def load_gemma2(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Gemma 2 (Gemma team, 2024): scaled embeddings, norms on both sides of a sublayer, every other layer slides, soft caps."""
    return Decoder(config, source, Family(norms=NORMS_AROUND, norm_offset=1.0))


def load_gemma3(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Gemma 3, text (Gemma team, 2025): scaled embeddings, norms on both sides of a sublayer and on heads, layers that slide
    with a rope of their own between layers that see the whole context, soft caps where the configuration has them."""
    return Decoder(config, source, Family(norms=NORMS_AROUND, norm_offset=1.0, qk_norm="head"))


def load_phi3(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Phi-3 to Phi-4 (Abdin et al., 2024): part of each head is rotated in some of them, with a rope for long prompts."""
    family = Family(
        qkv_in_folder="qkv_proj", qkv_in_gguf="attn_qkv", gate_up_in_folder="mlp.gate_up_proj", gate_up_in_gguf="ffn_up"
    )
    return Decoder(config, source, family)


def load_smollm3(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """SmolLM3: every fourth layer is not rotated."""
    return Decoder(config, source, Family(pairs_in_gguf=True))


def load_olmo2(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """OLMo 2 (OLMo team, 2025) and OLMo 3, of whose layers most slide: norms behind the sublayers, q and k normalised whole."""
    return Decoder(config, source, Family(norms=NORMS_AFTER, qk_norm="whole"))


def load_granite(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Granite 3: multipliers of embeddings, scores, sublayers and logits."""
    return Decoder(config, source, Family(pairs_in_gguf=True))


def load_granite4(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Granite 4, dense: as Granite 3; its folders name the MLP otherwise, its GGUF files do not."""
    down = Names("shared_mlp.output_linear", "ffn_down")
    return Decoder(config, source, Family(pairs_in_gguf=True, gate_up_in_folder="shared_mlp.input_linear", down=down))


def load_glm(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """GLM-4 9B of 2024, GLM-Edge: neighbouring columns are rotated, in half of each head."""
    return Decoder(config, source, GLM)


def load_glm4(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """GLM-4 of 2025 (GLM-4-0414): as GLM, with norms on both sides of a sublayer."""
    return Decoder(config, source, replace(GLM, norms=GLM4_NORMS))


def load_exaone4(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """EXAONE 4 (LG AI Research, 2025): norms behind the sublayers and on heads; between layers that slide, some see the whole
    context and are not rotated."""
    return Decoder(config, source, Family(norms=NORMS_AFTER, qk_norm="head"))


def load_seed_oss(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Seed-OSS: biases on q, k and v."""
    before_mlp = Names("post_attention_layernorm", "post_attention_norm")
    return Decoder(config, source, Family(norms=replace(NORMS_BEFORE, before_mlp=before_mlp)))


def load_mixtral(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Mixtral (Jiang et al., 2024): a Llama with experts."""
    return Decoder(config, source, Family(pairs_in_gguf=True, experts=MIXTRAL_NAMES))


def load_olmoe(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """OLMoE (Muennighoff et al., 2024): experts, q and k normalised whole."""
    return Decoder(config, source, Family(qk_norm="whole"))


def load_granite_moe(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Decoder[Weight, Vector]:
    """Granite 3 with experts, and with one that every token goes to in some."""
    return Decoder(config, source, Family(pairs_in_gguf=True, experts=GRANITE_NAMES))
