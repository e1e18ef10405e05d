"""Architecture names to what makes their model."""

from __future__ import annotations

from octavo.config.model import ModelConfig
from octavo.errors import LoadError
from octavo.models.parameters import ParameterSource
from octavo.ops.interface import Model, Vector, Weight
from octavo.registry import Registry

MODELS = Registry(
    "model architecture",
    {
        "LlamaForCausalLM": "octavo.models.llama:load_llama",
        "MistralForCausalLM": "octavo.models.mistral:load_mistral",
        "Qwen2ForCausalLM": "octavo.models.qwen2:load_qwen2",
        "Qwen3ForCausalLM": "octavo.models.qwen3:load_qwen3",
        "Gemma3ForCausalLM": "octavo.models.gemma3:Gemma3ForCausalLM",
    },
    LoadError,
)


def load_model(config: ModelConfig, source: ParameterSource[Weight, Vector]) -> Model[Weight, Vector]:
    """The model of config.architecture with its parameters loaded from source.

    Raises: LoadError for an unknown architecture (listing the known ones) and for missing or mis-shaped tensors.
    """
    model: Model[Weight, Vector] = MODELS.load(config.architecture)(config, source)
    return model
