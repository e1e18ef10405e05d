"""Architecture names to what makes their model."""

from __future__ import annotations

from octavo.config.model import ModelConfig
from octavo.errors import LoadError
from octavo.loader.parameter import Parameter
from octavo.models.source import Declaration, ParameterSource
from octavo.ops.interface import Model, Vector, Weight
from octavo.registry import Registry

MODELS = Registry(
    "model architecture",
    {
        "LlamaForCausalLM": "octavo.models.families:load_llama",
        "MistralForCausalLM": "octavo.models.families:load_llama",
        "Qwen2ForCausalLM": "octavo.models.families:load_qwen2",
        "Qwen3ForCausalLM": "octavo.models.families:load_qwen3",
        "Gemma2ForCausalLM": "octavo.models.families:load_gemma2",
        "Gemma3ForCausalLM": "octavo.models.families:load_gemma3",
        "Phi3ForCausalLM": "octavo.models.families:load_phi3",
        "SmolLM3ForCausalLM": "octavo.models.families:load_smollm3",
        "Olmo2ForCausalLM": "octavo.models.families:load_olmo2",
        "Olmo3ForCausalLM": "octavo.models.families:load_olmo2",
        "GraniteForCausalLM": "octavo.models.families:load_granite",
        "GraniteMoeHybridForCausalLM": "octavo.models.families:load_granite4",
        "GlmForCausalLM": "octavo.models.families:load_glm",
        "Glm4ForCausalLM": "octavo.models.families:load_glm4",
        "Ministral3ForCausalLM": "octavo.models.families:load_llama",
        "Exaone4ForCausalLM": "octavo.models.families:load_exaone4",
        "SeedOssForCausalLM": "octavo.models.families:load_seed_oss",
        "Qwen2MoeForCausalLM": "octavo.models.families:load_qwen2",
        "Qwen3MoeForCausalLM": "octavo.models.families:load_qwen3",
        "MixtralForCausalLM": "octavo.models.families:load_mixtral",
        "OlmoeForCausalLM": "octavo.models.families:load_olmoe",
        "GraniteMoeForCausalLM": "octavo.models.families:load_granite_moe",
        "GraniteMoeSharedForCausalLM": "octavo.models.families:load_granite_moe",
        "BertModel": "octavo.models.bert:BertModel",
    },
    LoadError,
)


def load_model(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Model[Weight, Vector]:
    """The model of config.architecture with its parameters from source.

    Raises: LoadError for an unknown architecture, listing the known ones, and for a configuration that it does not know.
    """
    model: Model[Weight, Vector] = MODELS.load(config.architecture)(config, source)
    return model


def declare(config: ModelConfig) -> tuple[Parameter, ...]:
    """The parameters of config.architecture; nothing is loaded. Raises: as load_model."""
    declaration = Declaration()
    load_model(config, declaration)
    return declaration.parameters
