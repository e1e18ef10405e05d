"""Replica: one engine with the real Scheduler and KVCacheManager, a worker that computes nothing, and a clock of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass

from octavo.config.resolved import ResolvedSchedulerConfig
from octavo.config.speculative import speculation_of
from octavo.kvcache.manager import KVCacheManager
from octavo.request import DEFAULT_TENANT, Request
from octavo.sampling_params import SamplingParams
from octavo.scheduler.estimator import Estimator
from octavo.scheduler.policies.registry import policy_for
from octavo.scheduler.scheduler import Scheduler
from octavo.sequence import Sequence
from octavo.simulator.cost_model import CostModel, load_of
from octavo.simulator.drafts import ChanceGuesser, sampled_tokens
from octavo.simulator.jump import fitting_steps, leap
from octavo.simulator.recorder import Recorder
from octavo.simulator.trace import Trace
from octavo.step import SampledTokens, ScheduledSequence, ShareKind, StepPlan, StepResult

OWN_TOKEN = 2**31
"""Token ids from here on belong to one request each; those below are shared contents (trace.Shared)."""

STATIC_POLICIES = frozenset({"fcfs"})
"""Policies that decide by arrival alone: while nothing arrives or ends, what they decided for one step holds for the next.
The others learn from every step, and those must all be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """What a replica is made of; scheduler.max_model_len fits the blocks.

    draft_acceptance  the chance of a guess to be right, where scheduler.speculative_config asks for guesses
    """

    scheduler: ResolvedSchedulerConfig
    num_blocks: int
    block_size: int
    enable_prefix_caching: bool = True
    draft_acceptance: float = 0.5

    @property
    def max_model_len(self) -> int:
        return self.scheduler.max_model_len


class Replica:
    """Steps as the engine core does: schedule, (pretend to) execute, settle; the step's duration comes from the cost model.

    With `jumps`, runs of equal decode steps are taken at once (see jump.py); all results are the same without.
    """

    def __init__(
        self, index: int, spec: EngineSpec, trace: Trace, cost: CostModel, recorder: Recorder, *, jumps: bool = True
    ) -> None:
        self.clock_s = 0.0
        self._index = index
        self._trace = trace
        self._cost = cost
        self._recorder = recorder
        config = spec.scheduler
        is_static = config.scheduler_policy in STATIC_POLICIES and config.target_itl is None
        self._drafts = speculation_of(config.speculative_config).num_speculative_tokens > 0
        self._draft_acceptance = spec.draft_acceptance
        self._jumps = jumps and is_static and not self._drafts
        self.manager = KVCacheManager(spec.num_blocks, spec.block_size, spec.enable_prefix_caching)
        estimator = Estimator()
        self.scheduler = Scheduler(config, self.manager, policy_for(config, estimator), estimator)
        self.scheduler.speculation.guesser_of = lambda sequence: ChanceGuesser(OWN_TOKEN + sequence.seq_id)
        self._live: dict[int, Sequence] = {}
        self._last_token_s: dict[int, float] = {}
        self._steady: list[Sequence] = []
        """All running sequences, in order of admission, when the next step can only be the last one again; else empty."""

    @property
    def num_live(self) -> int:
        """Requests that are here and have not ended."""
        return len(self._live)

    def add(self, request: int, now_s: float) -> None:
        """A request of the trace arrives. The caller has made sure that it fits max_model_len."""
        if not self._live and now_s > self.clock_s:
            self.clock_s = now_s
        trace = self._trace
        sequence = Sequence(
            request,
            Request(
                request_id=str(request),
                prompt_token_ids=prompt_of(trace, request),
                sampling=_SAMPLING,
                seed=0,
                max_tokens=int(trace.num_output[request]),
                stop_token_ids=[],
                arrival_s=now_s,
                priority=int(trace.priority[request]),
                tenant=trace.tenants[trace.tenant[request]] or DEFAULT_TENANT,
            ),
        )
        self._live[request] = sequence
        self._steady = []
        self.scheduler.add(sequence)
        recorder = self._recorder
        recorder.arrival_s[request] = now_s
        recorder.replica[request] = self._index

    def advance(self, until_s: float) -> None:
        """Run all steps that begin before until_s."""
        while self._live and self.clock_s < until_s:
            self.tick(until_s)

    def tick(self, until_s: float) -> None:
        """Run one step, or a run of equal ones that all begin before until_s and in which no request ends."""
        if not self._steady or not self._jump(until_s):
            self._step()

    def _step(self) -> None:
        start_s = self.clock_s
        num_waiting = self.scheduler.num_waiting
        plan = self.scheduler.schedule(start_s)
        assert plan is not None, "a replica with live requests has a step to make"
        load = load_of(plan)
        end_s = start_s + self._cost.seconds(load.prefill_tokens, load.prefill_pairs, load.decode_seqs, load.decode_context)
        sampled = [self._sampled(share) for share in plan.sequences if share.needs_sample]
        used_blocks = self.manager.num_blocks - self.manager.num_free
        updates = self.scheduler.settle(plan, StepResult(plan.step_id, sampled), end_s)
        self.clock_s = end_s
        recorder = self._recorder
        self._note_tokens(sampled, end_s)
        num_tokens = sum(len(update.new_token_ids) for update in updates)
        for update in updates:
            assert update.error is None, update.error
            if update.finish_reason is not None:
                self._leave(update.seq_id)
        ended = any(update.finish_reason is not None for update in updates)
        self._find_steady(plan, moved=ended or self.scheduler.num_waiting != num_waiting)
        recorder.step(
            start_s,
            end_s,
            steps=1,
            running=len(plan.sequences),
            waiting=self.scheduler.num_waiting,
            used_blocks=used_blocks,
            tokens=num_tokens,
        )

    def _sampled(self, share: ScheduledSequence) -> SampledTokens:
        own_token = OWN_TOKEN + share.seq_id
        if not self._drafts:
            return SampledTokens(share.seq_id, [own_token])
        return sampled_tokens(self._live[share.seq_id], share, own_token, self._draft_acceptance)

    def _note_tokens(self, sampled: list[SampledTokens], now_s: float) -> None:
        recorder, last_token_s = self._recorder, self._last_token_s
        gaps: dict[float, int] = {}
        """How many of the tokens follow one of this time; nearly all follow one of the step before."""
        for token in sampled:
            request = token.seq_id
            last_s = last_token_s.get(request)
            if last_s is not None:
                gaps[last_s] = gaps.get(last_s, 0) + 1
            elif math.isnan(recorder.first_token_s[request]):
                recorder.first_token_s[request] = now_s
            last_token_s[request] = now_s
        for last_s, count in gaps.items():
            recorder.itl.add(now_s - last_s, count)

    def _leave(self, request: int) -> None:
        sequence = self._live.pop(request)
        self._last_token_s.pop(request, None)  # none, if it ended in the queue
        recorder = self._recorder
        recorder.finish(request, self.clock_s)
        recorder.num_preemptions += sequence.num_preemptions
        recorder.prompt_tokens += sequence.num_prompt
        recorder.cached_tokens += sequence.num_cached_prompt or 0

    def _find_steady(self, plan: StepPlan, *, moved: bool) -> None:
        """Whether the step just made was decodes only, and the next one must be the same. moved: somebody came in or out.

        Somebody waits: the scheduler has just declined to admit anyone, and declines again until somebody ends, for running
        sequences only take more blocks. Nobody waits: there is nothing to decide.
        """
        self._steady = []
        scheduler = self.scheduler
        if not self._jumps or (scheduler.num_waiting and moved):
            return
        if all(share.kind is ShareKind.DECODE and share.needs_sample for share in plan.sequences):
            running = [self._live[share.seq_id] for share in plan.sequences if share.seq_id in self._live]
            if len(running) == scheduler.num_running:
                self._steady = running

    def _jump(self, until_s: float) -> bool:
        """Take as many equal decode steps as come before until_s, an end, or a lack of blocks. False: not even one."""
        running, manager = self._steady, self.manager
        limit = fitting_steps(running, manager)
        if self.scheduler.num_waiting:
            # Whoever has produced what it was expected to is estimated anew in the next step, as long as somebody waits.
            known = (sequence.expected_output - len(sequence.output_token_ids) for sequence in running)
            limit = min(limit, min((left for left in known if left >= 0), default=limit))
        if limit < 1:
            return False
        recorder, cost, count = self._recorder, self._cost, len(running)
        start_s = now_s = self.clock_s
        context = sum(sequence.num_tokens for sequence in running)
        steps = 0
        while steps == 0 or (steps < limit and now_s < until_s):
            end_s = now_s + cost.seconds(0, 0, count, context)
            recorder.itl.add(end_s - now_s, count)
            context += count
            now_s = end_s
            steps += 1
        leap(running, manager, steps, OWN_TOKEN)
        for sequence in running:
            self._last_token_s[sequence.seq_id] = now_s
        self.clock_s = now_s
        recorder.step(
            start_s,
            now_s,
            steps=steps,
            running=count,
            waiting=self.scheduler.num_waiting,
            used_blocks=manager.num_blocks - manager.num_free,
            tokens=steps * count,
        )
        return True


_SAMPLING = SamplingParams(temperature=0.0, ignore_eos=True)


def prompt_of(trace: Trace, request: int) -> list[int]:
    """Token ids of a prompt: each shared content is one id over and over, the rest is an id nobody else has."""
    num_prompt = int(trace.num_prompt[request])
    prompt: list[int] = []
    if trace.shared is not None:
        for content, tokens in trace.shared[request]:
            prompt += [content] * tokens
    return prompt + [OWN_TOKEN + request] * (num_prompt - len(prompt))
