"""Reasoning: the block at the beginning of an answer in which a model thinks, between a pair of tags."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.dialogue.sink import Sink
from octavo.dialogue.source import Reader, Source


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """begin and end of the block. always: the answer begins inside although nothing says so (DeepSeek R1)."""

    begin: str
    end: str
    always: bool = False

    def starts_inside(self, prompt_end: str) -> bool:
        """Whether the prompt has opened the block, given its last characters."""
        return not self.is_over(prompt_end) and (self.always or prompt_end.rstrip().endswith(self.begin))

    def is_over(self, prompt_end: str) -> bool:
        """Whether the prompt has closed the block already: the model is to answer at once."""
        return prompt_end.rstrip().endswith(self.end)


THINK = ReasoningTags("<think>", "</think>")
THINK_ALWAYS = ReasoningTags("<think>", "</think>", always=True)
MISTRAL_THINK = ReasoningTags("[THINK]", "[/THINK]")


def read_reasoning(source: Source, sink: Sink, tags: ReasoningTags, *, is_inside: bool) -> Reader[None]:
    """Take the block, if the answer begins with one. Text between the tags is passed on as it is."""
    source.keep()
    yield from source.space()
    if not (yield from source.accept(tags.begin)) and not is_inside:
        source.rewind()
        return
    if is_inside:
        source.rewind()
        before = yield from source.space()
        if not (yield from source.accept(tags.begin)):
            sink.reasoning(before)
    source.release()
    yield from source.copy_until(sink.reasoning, (tags.end,))
