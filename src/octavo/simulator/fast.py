"""FastReplica: the scheduler's first-come-first-served behaviour in counts, a few microseconds per event, for very long traces.

What makes it fast: all decoding sequences advance together, one token per step, so that nothing has to be kept per token. With
D the number of steps made so far,

    a sequence that begins to decode at step D with p tokens computed has p + (d - D) computed at step d,
    it needs a new block in the steps d with (d - (D - p)) % block_size == 0: only the residue is kept, in a table of counts,
    it ends at the step D + (tokens still to generate): the ends lie in a heap,
    and the sum of all contexts grows by the number of decoding sequences in every step.

A step costs O(prefilling sequences + ends), whatever the number of decodes; a run of pure decode steps costs O(block_size).

Under first come first served the running sequences always arrived before the waiting ones, so that running is a stack: the last
one is the victim, and it goes back to the front of the queue.

Equal to Replica with prefix caching off (twin, compared by a test on random traces, preemptions and all modes of admission
included): prefixes are not modelled here, nor any other policy.
"""

from __future__ import annotations

import heapq
import math
from collections import deque

from octavo.config.cache import blocks_for
from octavo.request import DEFAULT_TENANT, Request
from octavo.sampling_params import SamplingParams
from octavo.sequence import Sequence
from octavo.simulator.cost_model import CostModel, pairs_of, steps_before
from octavo.simulator.expected_growth import NO_DECODE, ExpectedGrowth
from octavo.simulator.recorder import Recorder
from octavo.simulator.replica import EngineSpec
from octavo.simulator.trace import Trace


class _Live:
    """A request here. computed and outputs are as of step joined for a decoding one, as of now for others.

    sequence   what the admission rule is asked about, without tokens of its own (see ExpectedGrowth)
    """

    __slots__ = (
        "computed",
        "end",
        "granted",
        "joined",
        "last_s",
        "max_output",
        "num_prompt",
        "outputs",
        "request",
        "running",
        "sequence",
    )

    def __init__(self, request: int, num_prompt: int, sequence: Sequence) -> None:
        self.request = request
        self.sequence = sequence
        self.num_prompt = num_prompt
        self.max_output = sequence.request.max_tokens
        self.outputs = 0
        self.computed = 0
        self.granted = 0
        self.joined = -1
        """Step at which it began to decode; -1 while it does not."""
        self.end = -1
        """The step count at which it will have ended."""
        self.running = False
        self.last_s = math.nan
        """Time of its last token, kept only while it is not decoding."""


class FastReplica:
    """Same face as Replica: add, advance, tick, clock_s, num_live."""

    def __init__(self, index: int, spec: EngineSpec, trace: Trace, cost: CostModel, recorder: Recorder) -> None:
        self.clock_s = 0.0
        self.num_live = 0
        self._index = index
        self._trace = trace
        self._cost = cost
        self._recorder = recorder
        self._size = spec.block_size
        self._num_blocks = spec.num_blocks
        self._free = spec.num_blocks
        self._max_seqs = min(spec.scheduler.max_num_seqs, spec.scheduler.max_num_batched_tokens)
        self._max_tokens = spec.scheduler.max_num_batched_tokens
        self._chunk = spec.scheduler.chunked_prefill_size
        self._growth = ExpectedGrowth(spec.scheduler.admission, spec.block_size)
        self._waiting: deque[_Live] = deque()
        self._stack: list[_Live] = []
        """Running sequences in order of arrival, and among them some that have ended."""
        self._prefills: list[_Live] = []
        self._num_running = 0
        self._step = 0
        self._num_decodes = 0
        self._context = 0
        """Tokens computed by all decoding sequences."""
        self._opening = [0] * spec.block_size
        """Decoding sequences that need a new block in steps with this residue."""
        self._ends: list[tuple[int, int, _Live]] = []
        self._late: list[_Live] = []
        """Decoding sequences whose last token, if any, is not of the step before."""

    def add(self, request: int, now_s: float) -> None:
        """A request of the trace arrives. The caller has made sure that it fits max_model_len."""
        if not self.num_live and now_s > self.clock_s:
            self.clock_s = now_s
        self.num_live += 1
        trace = self._trace
        sequence = Sequence(
            request,
            Request(
                request_id="",
                prompt_token_ids=[],
                sampling=_SAMPLING,
                seed=0,
                max_tokens=int(trace.num_output[request]),
                stop_token_ids=[],
                arrival_s=now_s,
                tenant=trace.tenants[trace.tenant[request]] or DEFAULT_TENANT,
            ),
        )
        self._waiting.append(_Live(request, int(trace.num_prompt[request]), sequence))
        recorder = self._recorder
        recorder.arrival_s[request] = now_s
        recorder.replica[request] = self._index
        recorder.prompt_tokens += int(trace.num_prompt[request])

    def advance(self, until_s: float) -> None:
        """Run all steps that begin before until_s."""
        while self.num_live and self.clock_s < until_s:
            self.tick(until_s)

    def tick(self, until_s: float) -> None:
        """Run one step, or a run of equal decode steps that all begin before until_s, up to the first end."""
        num_evicted = self._recorder.num_preemptions
        self._grow_decodes()
        shares, tokens = self._grow_prefills()
        if self._recorder.num_preemptions == num_evicted:
            self._admit(shares, tokens)
        if shares or self._late:
            self._run_mixed(shares)
        elif self._recorder.num_preemptions == num_evicted:
            self._run_decodes(until_s)
        else:
            self._run_decodes(self.clock_s)  # just this one: the next step may admit those that were preempted

    def _grow_decodes(self) -> None:
        """Blocks for this step's decodes; the latest arrivals give way."""
        residue = self._step % self._size
        while self._opening[residue] > self._free:
            self._evict(grown=False)
        self._free -= self._opening[residue]

    def _grow_prefills(self) -> tuple[list[tuple[_Live, int]], int]:
        """Shares of the running prefills, and the tokens that are left of the step."""
        shares: list[tuple[_Live, int]] = []
        tokens = self._max_tokens - self._num_decodes
        for live in tuple(self._prefills):
            if not live.running:
                continue
            num_new = min(live.num_prompt + live.outputs - live.computed, tokens, self._chunk)
            if num_new <= 0:
                continue
            missing = blocks_for(live.computed + num_new, self._size) - live.granted
            while missing > self._free and live.running:
                num_decodes = self._num_decodes
                self._evict(grown=True)
                tokens += num_decodes - self._num_decodes
            if live.running:
                live.granted += missing
                self._free -= missing
                tokens -= num_new
                shares.append((live, num_new))
        return shares, tokens

    def _admit(self, shares: list[tuple[_Live, int]], tokens: int) -> None:
        """Waiting requests in order, until one does not fit."""
        waiting, size, growth = self._waiting, self._size, self._growth
        if not waiting or self._num_running >= self._max_seqs or tokens == 0:
            return
        reserved = self._reserved()
        while waiting and self._num_running < self._max_seqs and tokens > 0:
            live = waiting[0]
            if self._num_running:
                needed = growth.blocks_of(live, live.outputs) + growth.rule.headroom(live.sequence)
                if needed + reserved > self._free:
                    return
            waiting.popleft()
            num_new = min(live.num_prompt + live.outputs, tokens, self._chunk)
            live.granted = blocks_for(num_new, size)
            live.running = True
            self._free -= live.granted
            reserved += growth.blocks_of(live, live.outputs) - live.granted
            growth.enter(live, live.outputs, NO_DECODE)
            tokens -= num_new
            self._num_running += 1
            self._stack.append(live)
            self._prefills.append(live)
            shares.append((live, num_new))

    def _reserved(self) -> int:
        """Blocks that running sequences are still to take."""
        if not self._growth.eager:
            return self._growth.total(self._step) - (self._num_blocks - self._free)
        reserved = self._opening[(self._step + 1) % self._size]
        for live in self._prefills:
            reserved += blocks_for(live.num_prompt + live.outputs + 1, self._size) - live.granted
        return reserved

    def _evict(self, *, grown: bool) -> None:
        """Preempt the latest arrival. grown: the decodes have their blocks of this step already."""
        stack = self._stack
        while not stack[-1].running:
            stack.pop()
        live = stack.pop()
        self._recorder.num_preemptions += 1
        if live.joined >= 0:
            self._leave_decodes(live)
            if live in self._late:
                self._late.remove(live)
            else:
                live.last_s = self.clock_s
            self._free += blocks_for(live.computed + grown, self._size)
        else:
            self._prefills.remove(live)
            self._free += live.granted
        live.computed = live.granted = 0
        live.running = False
        live.sequence.num_displaced += 1
        self._growth.leave(live)
        self._num_running -= 1
        self._waiting.appendleft(live)

    def _run_mixed(self, shares: list[tuple[_Live, int]]) -> None:
        """One step of all decodes and these shares."""
        prefill_tokens = prefill_pairs = singles = single_context = 0
        for live, num_new in shares:
            if live.num_prompt + live.outputs - live.computed == 1:
                singles += 1
                single_context += live.computed + 1
            else:
                prefill_tokens += num_new
                prefill_pairs += pairs_of(live.computed, num_new)
        num_decodes, start_s = self._num_decodes, self.clock_s
        context = self._context + num_decodes + single_context
        end_s = start_s + self._cost.seconds(prefill_tokens, prefill_pairs, num_decodes + singles, context)
        used_blocks, num_running = self._num_blocks - self._free, num_decodes + len(shares)
        recorder = self._recorder
        if num_decodes > len(self._late):
            recorder.itl.add(end_s - start_s, num_decodes - len(self._late))
        for live in self._late:
            self._token(live, end_s)
        self._late.clear()
        self.clock_s = end_s
        self._step += 1
        self._context += num_decodes
        tokens = num_decodes + self._settle_shares(shares)
        self._pop_ended()
        recorder.step(
            start_s,
            end_s,
            steps=1,
            running=num_running,
            waiting=len(self._waiting),
            used_blocks=used_blocks,
            tokens=tokens,
        )

    def _settle_shares(self, shares: list[tuple[_Live, int]]) -> int:
        """Progress of the prefills; returns the tokens they generated."""
        sampled = 0
        for live, num_new in shares:
            live.computed += num_new
            behind = live.num_prompt + live.outputs - live.computed
            if behind > 1:
                continue
            self._prefills.remove(live)
            if behind == 1:
                # One token behind is what the scheduler treats as a decode, though this one has nothing new to go on from.
                self._late.append(live)
            else:
                sampled += 1
                live.outputs += 1
                self._token(live, self.clock_s)
            self._join_decodes(live)
        return sampled

    def _run_decodes(self, until_s: float) -> None:
        """Decode steps until something ends, blocks run out, or until_s is reached; at least one."""
        count, start_s = self._num_decodes, self.clock_s
        steps = self._affordable(self._next_end() - self._step)
        if self._waiting:
            steps = min(steps, max(1, self._growth.next_question() - self._step))
        first_s, growth_s = self._cost.decode_run(count, self._context + count)
        steps = min(steps, steps_before(until_s - start_s, first_s, growth_s))
        for later in self._residues(steps):
            self._free -= later
        end_s = start_s + steps * first_s + growth_s * (steps * (steps - 1) / 2)
        recorder = self._recorder
        recorder.itl.add_run(first_s, growth_s, steps, count)
        self.clock_s = end_s
        self._step += steps
        self._context += steps * count
        used_blocks = self._num_blocks - self._free
        recorder.step(
            start_s,
            end_s,
            steps=steps,
            running=count,
            waiting=len(self._waiting),
            used_blocks=used_blocks,
            tokens=steps * count,
        )
        self._pop_ended()

    def _residues(self, steps: int) -> list[int]:
        """Blocks that decode steps after this one open: whole turns of the residues, then the rest one by one."""
        turns, rest = divmod(steps - 1, self._size)
        opening, step = self._opening, self._step
        opened = [opening[(step + later) % self._size] for later in range(1, rest + 1)]
        return [*opened, turns * self._num_decodes]

    def _affordable(self, steps: int) -> int:
        """At most `steps` steps, this one among them, whose blocks are free now."""
        if self._free >= self._num_decodes * blocks_for(steps, self._size):
            return steps
        turns = self._free // self._num_decodes
        left = self._free - turns * self._num_decodes
        fitting = 1 + turns * self._size
        while fitting < steps and left >= self._opening[(self._step + fitting) % self._size]:
            left -= self._opening[(self._step + fitting) % self._size]
            fitting += 1
        return min(steps, fitting)

    def _join_decodes(self, live: _Live) -> None:
        """From the next step on it decodes; or it has ended with its only token."""
        live.joined = self._step
        live.end = self._step + live.max_output - live.outputs
        self._num_decodes += 1
        self._context += live.computed
        self._opening[(self._step - live.computed) % self._size] += 1
        self._growth.enter(live, live.outputs, self._step - live.outputs)
        heapq.heappush(self._ends, (live.end, live.request, live))

    def _leave_decodes(self, live: _Live) -> None:
        """computed and outputs become those of now."""
        self._opening[(live.joined - live.computed) % self._size] -= 1
        made = self._step - live.joined
        live.computed += made
        live.outputs += made
        live.joined = live.end = -1
        self._num_decodes -= 1
        self._context -= live.computed

    def _next_end(self) -> int:
        """The step count at which the next decoding sequence ends. Entries of preempted ones are dropped."""
        ends = self._ends
        while ends[0][0] != ends[0][2].end:
            heapq.heappop(ends)
        return ends[0][0]

    def _pop_ended(self) -> None:
        """Let go of what has ended, in the order of the scheduler's books: decodes by arrival, then prefills."""
        ends, now = self._ends, self._step
        ended: list[_Live] = []
        while ends and ends[0][0] <= now:
            live = heapq.heappop(ends)[2]
            if live.end == now:
                ended.append(live)
        if len(ended) > 1:
            ended.sort(key=lambda live: live.joined == now)
        for live in ended:
            self._leave_decodes(live)
            self._growth.end(live, live.outputs)
            live.running = False
            self._free += blocks_for(live.computed, self._size)
            self._num_running -= 1
            self.num_live -= 1
            self._recorder.finish(live.request, self.clock_s)
        if len(self._stack) > 2 * self._num_running + 64:
            self._stack = [live for live in self._stack if live.running]

    def _token(self, live: _Live, now_s: float) -> None:
        """A token of a sequence that was not decoding in the step before."""
        recorder = self._recorder
        if math.isnan(recorder.first_token_s[live.request]):
            recorder.first_token_s[live.request] = now_s
        else:
            recorder.itl.add(now_s - live.last_s)


_SAMPLING = SamplingParams(temperature=0.0, ignore_eos=True)
