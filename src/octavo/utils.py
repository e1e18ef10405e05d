"""Small tools around an engine in this process."""

from __future__ import annotations

from typing import Protocol

from octavo.kvcache.report import MemoryReport


class HasMemory(Protocol):
    """An LLM or an LLMEngine."""

    def memory_stats(self) -> MemoryReport: ...


def memory_stats(engine: HasMemory) -> MemoryReport:
    """KV cache and swap space of an LLM or LLMEngine laid open: used, cached, free and swapped blocks, waste, block map.

    Of a server the same comes from GET /admin/memory, of an AsyncLLMEngine from `await engine.memory_stats()`.
    """
    return engine.memory_stats()
