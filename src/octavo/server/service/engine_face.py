"""What the server needs of an engine: AsyncLLMEngine has this face, and so has the fake of the server tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from octavo.config.model import ModelConfig
from octavo.config.resolved import ResolvedConfig
from octavo.engine.frontend.outputs import RequestOutput
from octavo.engine.frontend.places import Places
from octavo.engine.frontend.pooling_outputs import PoolingRequestOutput
from octavo.engine.wire.messages import ReconfigureReport
from octavo.kvcache.report import MemoryReport
from octavo.pooling_params import PoolingParams
from octavo.request import RequestOptions
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.structured_outputs import StructuredOutputsParams
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import Tokenizer


class Engine(Protocol):
    """The engine as the server sees it. `tokenizer` and `chat_template` live in the API process."""

    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def chat_template(self) -> ChatTemplate: ...
    @property
    def model_config(self) -> ModelConfig: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def generation_defaults(self) -> Mapping[str, Any]: ...
    @property
    def resolved_config(self) -> ResolvedConfig:
        """The configuration in force; `reconfigure` replaces it."""
        ...

    @property
    def places(self) -> Places: ...
    @property
    def metrics(self) -> Any: ...
    @property
    def weights_version(self) -> str: ...
    def generate(
        self,
        prompt: list[int],
        sampling_params: SamplingParams,
        request_id: str,
        options: RequestOptions,
        *,
        output_kind: RequestOutputKind,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Deliver what output_kind says. Closing the generator aborts the request."""
        ...

    def encode(
        self, prompt: list[int], pooling_params: PoolingParams, request_id: str, options: RequestOptions
    ) -> AsyncGenerator[PoolingRequestOutput, None]:
        """Deliver the embedding of one prompt. Closing the generator aborts the request."""
        ...

    async def check_form(self, form: StructuredOutputsParams) -> None:
        """Raise InvalidRequestError naming the field if no answer can be held to this form."""
        ...

    async def reconfigure(self, **settings: int | float | str) -> ReconfigureReport:
        """Change settings, all or none. Raises ConfigError naming the one that cannot be."""
        ...

    async def memory_stats(self) -> MemoryReport: ...

    async def check_health(self) -> None: ...

    async def drain(self, timeout_s: float) -> None: ...

    async def shutdown(self) -> None: ...
