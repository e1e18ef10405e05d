"""octavo serves large language models: an OpenAI-compatible server and a Python API, small, fast and deterministic on CPUs.

The public names are loaded when they are first used, so that `import octavo` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.engine.args import AsyncEngineArgs, EngineArgs
    from octavo.engine.frontend.async_llm_engine import AsyncLLMEngine
    from octavo.engine.frontend.beam_search import BeamSearchOutput, BeamSearchParams, BeamSearchSequence
    from octavo.engine.frontend.outputs import CompletionOutput, RequestOutput
    from octavo.engine.frontend.pooling_outputs import EmbeddingRequestOutput, PoolingRequestOutput, ScoringRequestOutput
    from octavo.engine.frontend.prompt import TextPrompt, TokensPrompt
    from octavo.engine.llm_engine import LLMEngine
    from octavo.errors import InvalidRequestError, OctavoError
    from octavo.llm import LLM
    from octavo.pooling_params import PoolingParams
    from octavo.sampling_params import RequestOutputKind, SamplingParams
    from octavo.structured_outputs import StructuredOutputsParams

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "AsyncEngineArgs",
    "AsyncLLMEngine",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "CompletionOutput",
    "EmbeddingRequestOutput",
    "EngineArgs",
    "InvalidRequestError",
    "LLMEngine",
    "OctavoError",
    "PoolingParams",
    "PoolingRequestOutput",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "ScoringRequestOutput",
    "StructuredOutputsParams",
    "TextPrompt",
    "TokensPrompt",
    "__version__",
]

_HOMES = {
    "LLM": "octavo.llm",
    "AsyncEngineArgs": "octavo.engine.args",
    "AsyncLLMEngine": "octavo.engine.frontend.async_llm_engine",
    "BeamSearchOutput": "octavo.engine.frontend.beam_search",
    "BeamSearchParams": "octavo.engine.frontend.beam_search",
    "BeamSearchSequence": "octavo.engine.frontend.beam_search",
    "CompletionOutput": "octavo.engine.frontend.outputs",
    "EmbeddingRequestOutput": "octavo.engine.frontend.pooling_outputs",
    "EngineArgs": "octavo.engine.args",
    "InvalidRequestError": "octavo.errors",
    "LLMEngine": "octavo.engine.llm_engine",
    "OctavoError": "octavo.errors",
    "PoolingParams": "octavo.pooling_params",
    "PoolingRequestOutput": "octavo.engine.frontend.pooling_outputs",
    "RequestOutput": "octavo.engine.frontend.outputs",
    "RequestOutputKind": "octavo.sampling_params",
    "SamplingParams": "octavo.sampling_params",
    "ScoringRequestOutput": "octavo.engine.frontend.pooling_outputs",
    "StructuredOutputsParams": "octavo.structured_outputs",
    "TextPrompt": "octavo.engine.frontend.prompt",
    "TokensPrompt": "octavo.engine.frontend.prompt",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
