"""PoolingParams: what a request for an embedding asks for, as vLLM names it; and Pooling, what the engine makes of it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from octavo.errors import InvalidRequestError
from octavo.sampling_params import RequestOutputKind
from octavo.structured_outputs import StructuredOutputsParams

PoolingKind: TypeAlias = Literal["last", "mean", "cls"]
"""Which of a prompt's last hidden states make its embedding: that of the last token, their mean, or that of the first token."""

POOLING_KINDS: tuple[PoolingKind, ...] = ("last", "mean", "cls")
TASKS = ("embed",)


class Pooling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the engine pools one request.

    whole   the prompt must be computed in one step: each of its tokens sees all others
    """

    kind: PoolingKind
    whole: bool = False

    @property
    def reads_every_row(self) -> bool:
        """Every position must be computed anew: what the prefix cache or the swap space holds are keys, not hidden states."""
        return self.kind != "last" or self.whole


class PoolingParams(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What to make of a prompt's hidden states.

    task                    "embed", the only one; None is that too
    dimensions              keep the first so many numbers (Matryoshka; Kusupati et al., 2022), before the length becomes 1
    use_activation          divide by the length, so that the vector has length 1; None: as the model's files say, else yes
    normalize               the same, by vLLM's older name
    truncate_prompt_tokens  keep the first so many tokens of a longer prompt; -1: as many as the context has. None: refuse it
    """

    task: str | None = None
    dimensions: int | None = None
    use_activation: bool | None = None
    normalize: bool | None = None
    truncate_prompt_tokens: int | None = None

    def __post_init__(self) -> None:
        """Raise InvalidRequestError naming a field of another type; what depends on the model is checked by `validate`."""
        for name in ("dimensions", "truncate_prompt_tokens"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise InvalidRequestError(f"{name} is {repr(value)[:40]}; it must be a whole number", param=name)
        for name in ("use_activation", "normalize"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise InvalidRequestError(f"{name} is {repr(value)[:40]}; it must be true or false", param=name)

    # What SamplingParams have too: there is one result, in no form, and it is delivered when it is there.

    @property
    def n(self) -> int:
        return 1

    @property
    def output_kind(self) -> RequestOutputKind:
        return RequestOutputKind.FINAL_ONLY

    @property
    def structured_outputs(self) -> StructuredOutputsParams | None:
        return None

    @property
    def wants_unit_length(self) -> bool | None:
        """None: as the model's files say."""
        return self.use_activation if self.normalize is None else self.normalize

    def clone(self) -> PoolingParams:
        return msgspec.structs.replace(self)

    def validate(self, hidden_size: int, max_model_len: int) -> None:
        """Raise InvalidRequestError naming the field; one that was set later may have any type."""
        self.__post_init__()
        if self.task is not None and self.task not in TASKS:
            raise InvalidRequestError(f"task is {str(self.task)[:40]!r}; the model has {', '.join(TASKS)}", param="task")
        if None not in (self.use_activation, self.normalize) and self.use_activation != self.normalize:
            raise InvalidRequestError("normalize and use_activation are one setting; give one of them", param="normalize")
        if self.dimensions is not None and not 1 <= self.dimensions <= hidden_size:
            raise InvalidRequestError(
                f"dimensions is {str(self.dimensions)[:40]}; it must be 1 to {hidden_size}, what this model's embeddings have",
                param="dimensions",
            )
        limit = self.truncate_prompt_tokens
        if limit is not None and not (1 <= limit <= max_model_len or limit == -1):
            raise InvalidRequestError(
                f"truncate_prompt_tokens is {str(limit)[:40]}; it must be 1 to {max_model_len}, the context, or -1 for that",
                param="truncate_prompt_tokens",
            )
