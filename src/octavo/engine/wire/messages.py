"""Messages between the API process and the core process: tagged msgspec structs in msgpack, never pickle."""

from __future__ import annotations

from typing import Literal

import msgspec

from octavo.config.changes import Changes, Value
from octavo.config.engine import EngineConfig
from octavo.config.resolved import ResolvedConfig
from octavo.grammar.tokens import TokenTable
from octavo.kvcache.report import MemoryReport
from octavo.loader.identity import FileIdentity
from octavo.request import Request
from octavo.step import TokenLogprobs

# To the core.


class StartCore(msgspec.Struct, tag="start"):
    """The first words a core process hears, on its stdin. descriptor: of its end of the channel; parent_pid: die with it."""

    descriptor: int
    parent_pid: int
    log_level: str
    config: EngineConfig


class AddRequest(msgspec.Struct, tag="add"):
    request: Request


class SetTokens(msgspec.Struct, tag="tokens"):
    """The model's tokens; sent before the first request with a grammar."""

    table: TokenTable


class AbortChoices(msgspec.Struct, tag="abort"):
    """(request_id, choice) pairs to stop; choice -1 is all of them. Unknown ones are ignored: they ended already."""

    choices: list[tuple[str, int]]


class Shutdown(msgspec.Struct, tag="shutdown"):
    """End after the step in progress."""


class Reconfigure(msgspec.Struct, tag="reconfigure"):
    """Change settings before the next step; answered by Reconfigured or CallFailed with the same call_id."""

    call_id: int
    changes: Changes


class ReadMemory(msgspec.Struct, tag="read_memory"):
    """Answered by MemoryRead or CallFailed with the same call_id."""

    call_id: int


ToCore = AddRequest | SetTokens | AbortChoices | Shutdown | Reconfigure | ReadMemory

# From the core.


class ReconfigureReport(msgspec.Struct):
    """What a reconfiguration did.

    config     the configuration in force from now on
    changed    [before, after] of each setting that is another one now
    num_preempted, num_moved_tokens   sequences that lost their place in the cache; tokens that were moved in it
    reason     why the tuner did it; empty when it was asked for
    """

    config: ResolvedConfig
    changed: dict[str, tuple[Value, Value]]
    num_preempted: int
    num_moved_tokens: int
    duration_s: float
    reason: str = ""


class TokenOutput(msgspec.Struct, array_like=True, omit_defaults=True):
    """What one choice of one request gained in one step.

    prompt_logprobs  those of prompt positions that became known, in order, the first being position 1
    finish_reason    value of sequence.FinishReason; set exactly once, in the last output of the choice
    num_cached       prompt tokens that came from the prefix cache (-1: not known yet)
    num_drafted      guesses that the step verified for it; num_accepted: those of them that are among token_ids
    pooled           what the hidden states come to (see step.PooledVector); of a request that is pooled, with its end
    """

    request_id: str
    choice: int
    token_ids: list[int]
    logprobs: list[TokenLogprobs] = []
    prompt_logprobs: list[TokenLogprobs] = []
    finish_reason: str | None = None
    stop_token_id: int | None = None
    error: str | None = None
    num_cached: int = -1
    num_preemptions: int = 0
    pooled: bytes = b""
    num_drafted: int = 0
    num_accepted: int = 0


class CoreStats(msgspec.Struct, array_like=True):
    """Gauges at the end of a step, and counters since the core started (prefix_* in tokens; busy_s: seconds in steps).

    num_swapped_blocks    swap blocks that preempted or waiting sequences keep, of num_swap_blocks
    num_swap_preemptions  those of num_preemptions that went to the swap space; the others are computed again
    num_swap_failures     blocks that could not be written there, or read back
    num_drafts            shares of sequences that had guesses; num_draft_tokens: their guesses
    accepted_at           accepted guesses by their place behind the last token
    prefix_hits_*         those of prefix_hits found in freed blocks and in the swap space; the others are of running sequences
    """

    num_running: int = 0
    num_waiting: int = 0
    num_used_blocks: int = 0
    num_blocks: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    num_preemptions: int = 0
    num_steps: int = 0
    num_swapped_blocks: int = 0
    num_swap_blocks: int = 0
    swap_out_bytes: int = 0
    swap_in_bytes: int = 0
    num_swap_preemptions: int = 0
    num_swap_failures: int = 0
    prefix_hits_freed: int = 0
    prefix_hits_swapped: int = 0
    busy_s: float = 0.0
    num_reconfigurations: int = 0
    num_tunings: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    accepted_at: list[int] = []


class StepOutputs(msgspec.Struct, tag="step"):
    """One message per step. started: ids of requests that were first scheduled in it.

    stats: left out while steps follow closely and nothing but the counters has changed.
    estimates_s: for each of `started`, the seconds it was then expected to take.
    An idle core sends one without outputs every second.
    """

    outputs: list[TokenOutput]
    started: list[str]
    stats: CoreStats | None
    started_s: float
    estimates_s: list[float] = []


class Beat(msgspec.Struct, tag="beat"):
    """The core is in a step that takes long, and computes."""


class CoreReady(msgspec.Struct, tag="ready"):
    """The core serves. config is resolved: a restarted core is given it, so that budgets never change under way.

    files: of the model, as they were opened.
    """

    config: ResolvedConfig
    weights_version: bytes
    description: list[str]
    files: tuple[FileIdentity, ...]


class CoreFailed(msgspec.Struct, tag="failed"):
    """The core cannot start. kind tells which error the API process raises: "config", "load" or "internal"."""

    kind: Literal["config", "load", "internal"]
    message: str
    param: str | None


class Reconfigured(msgspec.Struct, tag="reconfigured"):
    """Settings have changed. call_id is that of the question; None: the core's own tuner did it."""

    call_id: int | None
    report: ReconfigureReport


class MemoryRead(msgspec.Struct, tag="memory"):
    call_id: int
    report: MemoryReport


class CallFailed(msgspec.Struct, tag="call_failed"):
    """A question that was refused (kind "config") or failed ("internal"); nothing has changed."""

    call_id: int
    kind: Literal["config", "internal"]
    message: str
    param: str | None


Answer = Reconfigured | MemoryRead | CallFailed
FromCore = StepOutputs | Beat | CoreReady | CoreFailed | Answer
