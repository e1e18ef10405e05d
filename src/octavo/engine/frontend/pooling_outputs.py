"""What the owner of a pooled request receives. Names and fields follow vLLM; vectors are numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from octavo.engine.frontend.outputs import RequestOutput
from octavo.errors import EngineDeadError, RequestFailedError


@dataclass(slots=True)
class PoolingOutput:
    """data: float32 [dimensions]."""

    data: NDArray[np.float32]


@dataclass(slots=True)
class EmbeddingOutput:
    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        """How many numbers it has."""
        return len(self.embedding)


@dataclass(slots=True)
class ScoringOutput:
    """score: cosine of the angle between two embeddings, -1 to 1."""

    score: float


OutputT = TypeVar("OutputT")


@dataclass(slots=True)
class _Outputs(Generic[OutputT]):
    """num_cached_tokens: prompt tokens that were found in the prefix cache."""

    request_id: str
    outputs: OutputT
    prompt_token_ids: list[int]
    num_cached_tokens: int = 0
    finished: bool = True


class PoolingRequestOutput(_Outputs[PoolingOutput]):
    """The vector of one prompt."""

    @classmethod
    def of(cls, output: RequestOutput) -> PoolingRequestOutput:
        """From the last delivery of a request. Raises: EngineDeadError when the engine aborted it, RequestFailedError when it
        failed there."""
        if output.pooled is None:
            if output.error is not None:
                raise RequestFailedError(output.error)
            raise EngineDeadError("the engine stopped this request before it was complete", code="request_aborted")
        pooled = PoolingOutput(output.pooled)
        return cls(output.request_id, pooled, output.prompt_token_ids, output.num_cached_tokens)


class EmbeddingRequestOutput(_Outputs[EmbeddingOutput]):
    """The same as a list of numbers."""

    @classmethod
    def of(cls, output: PoolingRequestOutput) -> EmbeddingRequestOutput:
        embedding = EmbeddingOutput(output.outputs.data.tolist())
        return cls(output.request_id, embedding, output.prompt_token_ids, output.num_cached_tokens)


class ScoringRequestOutput(_Outputs[ScoringOutput]):
    """How alike two texts are."""
