"""BackendConfig: what computes, and with how many threads."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    device: str = option(
        "cpu",
        "cpu is the native backend; reference is plain numpy float32 (slow, for checking).",
        choices=("cpu", "reference"),
        synonyms={"auto": "cpu"},
    )
    num_threads: int | None = option(
        None, "Compute threads. Default: the CPUs this process may use (affinity and cgroup limit).", low=1, high=1024
    )
    isa: str = option(
        "auto",
        "Kernel variant; auto takes the best this CPU has.",
        choices=("auto", "portable", "avx2", "avxvnni", "avx512", "neon"),
    )
    enforce_eager: bool = option(False, "Run op by op instead of replaying the recorded tape. Same bytes, slower.")
