"""SamplingAdvice: the sampling settings that a model's makers recommend, and who says so."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingAdvice:
    """Settings for requests that bring none.

    values  under the names of SamplingParams
    source  who says so, the end of a sentence that begins with "as"; "" without values
    """

    values: dict[str, float | int] = field(default_factory=dict)
    source: str = ""

    def describe(self) -> str:
        """The line printed at start."""
        if not self.values:
            return "sampling temperature 1 where a request says nothing; the model's files recommend no settings"
        shown = ", ".join(f"{name} {value:g}" for name, value in self.values.items())
        return f"sampling {shown} where a request says nothing, as {self.source}"


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    pattern: str
    values: dict[str, float | int]


# A GGUF file seldom carries what stands in the generation_config.json of the folder that it was made from, or on its card.
_FAMILIES = (
    _Family("SmolLM2", r"llama .*smollm2", {"temperature": 0.2, "top_p": 0.9}),
    _Family("Gemma 3", r"gemma3 ", {"temperature": 1.0, "top_k": 64, "top_p": 0.95}),
    _Family("Qwen3", r"qwen3 ", {"temperature": 0.6, "top_k": 20, "top_p": 0.95}),
    _Family(
        "Qwen2.5",
        r"qwen2 .*qwen ?2\.5.*instruct",
        {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05},
    ),
    _Family("Llama 3", r"llama .*llama ?3.*instruct", {"temperature": 0.6, "top_p": 0.9}),
)


def advice_for_family(architecture: str, *names: str) -> SamplingAdvice:
    """The advice of the makers of the family that a GGUF architecture and names ("Qwen2.5 0.5B Instruct") tell of, if known."""
    text = f"{architecture} {' '.join(names)}".lower().replace("-", " ").replace("_", " ")
    for family in _FAMILIES:
        if re.match(family.pattern, text):
            return SamplingAdvice(dict(family.values), f"the makers of {family.name} advise; the file has no settings")
    return SamplingAdvice()
