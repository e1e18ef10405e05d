"""Fakes the engine tests share: a tokenizer whose tokens are bytes, a model folder for it, a worker that follows a script."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from octavo.config.engine import EngineConfig
from octavo.config.machine import Machine
from octavo.config.resolve import resolve
from octavo.engine.core.build import BuiltCore, assemble_core
from octavo.loader.checkpoint import open_config
from octavo.request import Request
from octavo.sampling_params import SamplingParams
from octavo.sequence import Sequence
from octavo.step import (
    NewSequence,
    Relayout,
    RelayoutResult,
    SampledTokens,
    ScheduledSequence,
    StepPlan,
    StepResult,
    TokenLogprobs,
)
from octavo.text.tokenizer import Tokenizer, TokenizerSpec

EOS = 256
VOCAB_SIZE = 260
MACHINE = Machine(num_cpus=2, available_bytes=2**30, total_bytes=2**31)
MODEL_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "eos_token_id": EOS,
}
CHAT_TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"


def byte_backend() -> Backend:
    """Token i is byte i, token 256 is the end of sequence."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend = Backend(models.BPE(vocab=_byte_vocabulary(alphabet), merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>"])
    return backend


def byte_tokenizer() -> Tokenizer:
    return Tokenizer(byte_backend(), TokenizerSpec(source="bytes", eos_token_ids=(EOS,)))


def ids(text: str) -> list[int]:
    """Token ids of text: its UTF-8 bytes."""
    return list(text.encode())


def write_model(folder: Path) -> Path:
    """A model folder to be opened with load_format "dummy": a tiny Llama over the byte tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MODEL_CONFIG))
    byte_backend().save(str(folder / "tokenizer.json"))
    tokenizer_config = {"eos_token": "<eos>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return folder


def make_sequence(
    seq_id: int,
    prompt: Iterable[int],
    max_tokens: int = 4,
    *,
    choice: int = 0,
    fork_of: int | None = None,
    adapter_id: str = "",
    output_token_ids: Iterable[int] = (),
    expected_s: float = 0.0,
    **fields: Any,
) -> Sequence:
    """A sequence of a request of its own; fields of the request as keywords."""
    values: dict[str, Any] = {
        "request_id": f"r{seq_id}",
        "sampling": SamplingParams(max_tokens=max_tokens),
        "seed": 0,
        "stop_token_ids": [],
        "arrival_s": 0.0,
        **fields,
    }
    request = Request(prompt_token_ids=list(prompt), max_tokens=max_tokens, **values)
    return Sequence(seq_id, request, choice, fork_of, adapter_id, list(output_token_ids), expected_s=expected_s)


class FakeWorker:
    """What follows a prompt in `scripts` (by its text) is that script, then EOS; else it is a function of the history alone.

    A step with a sequence whose prompt begins with "poison" raises as a whole; `before_step` is called first in every step.
    """

    def __init__(self, scripts: dict[str, str] | None = None, before_step: Callable[[StepPlan], None] | None = None) -> None:
        self.scripts = scripts or {}
        self.before_step = before_step
        self.known: dict[int, tuple[NewSequence, list[int]]] = {}
        self.started: deque[StepPlan] = deque()
        self.num_steps = 0
        self.batch_sizes: list[int] = []
        self.relayouts: list[Relayout] = []
        self.fail_reconfigure: Exception | None = None
        self.swap_block_s: float | None = None

    def start(self, plan: StepPlan) -> None:
        self.started.append(plan)

    def finish(self) -> StepResult:
        try:
            return self._run(self.started.popleft())
        except BaseException:
            self.started.clear()
            raise

    def drop(self) -> None:
        self.started.clear()

    def _run(self, plan: StepPlan) -> StepResult:
        self.num_steps += 1
        self.batch_sizes.append(len(plan.sequences))
        for seq_id in plan.removed:
            self.known.pop(seq_id, None)
        for share in plan.sequences:
            if share.new is not None:
                assert share.seq_id not in self.known, "told twice"
                self.known[share.seq_id] = (share.new, list(share.new.token_ids))
            self.known[share.seq_id][1].extend(share.token_ids)
        if self.before_step is not None:
            self.before_step(plan)
        for share in plan.sequences:
            if _prompt(self.known[share.seq_id][0]).startswith("poison"):
                raise FloatingPointError("poisoned")
        return StepResult(plan.step_id, [self._sample(share) for share in plan.sequences if share.needs_sample])

    def reconfigure(self, relayout: Relayout) -> RelayoutResult:
        self.relayouts.append(relayout)
        if self.fail_reconfigure is not None:
            raise self.fail_reconfigure
        for seq_id in self.known.keys() - relayout.tables.keys():
            del self.known[seq_id]
        return RelayoutResult(swap_block_s=self.swap_block_s)

    def _sample(self, share: ScheduledSequence) -> SampledTokens:
        """What follows, and what follows that, as long as the share has guessed it."""
        new, known = self.known[share.seq_id]
        sampled = SampledTokens(share.seq_id, [])
        for draft in [*share.draft_token_ids, None]:
            token_id = self._next(new, known + sampled.token_ids)
            sampled.token_ids.append(token_id)
            sampled.logprobs += fake_logprobs(token_id, new.sampling.logprobs)
            if token_id != draft:
                break
            sampled.num_accepted += 1
        return sampled

    def _next(self, new: NewSequence, token_ids: list[int]) -> int:
        script = self.scripts.get(_prompt(new))
        if script is None:
            return fake_token(token_ids, new.seed, new.choice)
        done = len(token_ids) - new.num_prompt
        following: list[int] = [*script.encode(), EOS]
        return following[min(done, len(following) - 1)]


def fake_token(token_ids: list[int], seed: int, choice: int) -> int:
    """A lower-case letter that depends on everything before it."""
    digest = hashlib.blake2b(repr((token_ids, seed, choice)).encode(), digest_size=2).digest()
    return ord("a") + int.from_bytes(digest, "little") % 26


def fake_text(prompt: str, count: int, seed: int = 0, choice: int = 0) -> str:
    """What the fake worker writes after an unscripted prompt."""
    token_ids = ids(prompt)
    for _ in range(count):
        token_ids.append(fake_token(token_ids, seed, choice))
    return bytes(token_ids[len(prompt.encode()) :]).decode()


def fake_logprobs(token_id: int, count: int | None) -> list[TokenLogprobs]:
    if count is None:
        return []
    others = [(token_id + 1 + i) % VOCAB_SIZE for i in range(count)]
    return [TokenLogprobs(token_id, -0.5, count + 1, others, [-0.1 * (i + 1) for i in range(count)])]


def make_fake_core(config: EngineConfig, worker: FakeWorker | None = None) -> BuiltCore:
    """A core for `config` (loading.model is a path) around a fake worker."""
    model, _ = open_config(Path(config.loading.model), config.loading.load_format)
    resolved = resolve(config, model, MACHINE, lambda model, block_size, dtype: 1024 * block_size)
    return BuiltCore(assemble_core(resolved.config, worker or FakeWorker(), b"fake"), resolved, b"fake", resolved.describe())


def _prompt(new: NewSequence) -> str:
    return bytes(token_id for token_id in new.token_ids[: new.num_prompt] if token_id < EOS).decode(errors="replace")


def _byte_vocabulary(alphabet: list[str]) -> dict[str, int]:
    """GPT-2's printable stand-in of every byte, at the byte's own number."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    stand_in = {byte: chr(byte) for byte in plain}
    for index, byte in enumerate(byte for byte in range(256) if byte not in stand_in):
        stand_in[byte] = chr(256 + index)
    assert set(stand_in.values()) == set(alphabet)
    return {character: byte for byte, character in stand_in.items()}
