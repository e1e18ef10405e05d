"""OutputProcessor: the core's token ids become text, stop strings are found, and every outcome is written into the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo.engine.frontend.ledger import Ledger, RequestRecord
from octavo.engine.frontend.logprobs import PositionLogprobs, with_text
from octavo.engine.frontend.outputs import CompletionOutput, RequestOutput
from octavo.engine.frontend.pooling import EmbeddingForm
from octavo.engine.wire.messages import StepOutputs, TokenOutput
from octavo.log import get_logger
from octavo.request import Request
from octavo.sampling_params import RequestOutputKind
from octavo.sequence import FinishReason
from octavo.text.emitter import TextEmitter
from octavo.text.tokenizer import Tokenizer

TIMEOUT_STOP_REASON = "timeout"
"""stop_reason of a choice that ended at the request's own deadline; its finish_reason is "length", the one that clients of
OpenAI's API know for an answer that was cut. With finish_reason "stop" it is a stop string like any other."""

# Reading the value of an enum member costs as much as comparing ten strings, and these are compared for every token.
_STOP = FinishReason.STOP.value
_SHED = FinishReason.SHED.value
_TIMEOUT = FinishReason.TIMEOUT.value
_LENGTH = FinishReason.LENGTH.value

_logger = get_logger(__name__)


@dataclass(slots=True)
class _Choice:
    """One running choice; `total` is what it has so far, and is only filled for cumulative and final outputs."""

    emitter: TextEmitter
    total: CompletionOutput
    cumulative_logprob: float | None


@dataclass(slots=True)
class _Live:
    """A request whose outcome is open."""

    request: Request
    record: RequestRecord
    prompt: str | None
    kind: RequestOutputKind
    choices: dict[int, _Choice]
    """Those that still run."""
    done: dict[int, CompletionOutput] = field(default_factory=dict)
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    prompt_logprobs_sent: bool = False
    num_cached: int = 0
    embedding: EmbeddingForm | None = None


@dataclass(slots=True)
class Processed:
    """What one message of the core comes to: deliveries, and (request id, choice) pairs the core must stop."""

    outputs: list[RequestOutput]
    aborts: list[tuple[str, int]]


class OutputProcessor:
    """Knows the text side of every live request.

    A choice ends here exactly once: by the core, by a stop string, by an abort, by an error, or with the core itself; whatever
    comes later for it is dropped.
    """

    def __init__(self, tokenizer: Tokenizer, ledger: Ledger) -> None:
        self._tokenizer = tokenizer
        self._ledger = ledger
        self._live: dict[str, _Live] = {}

    def add(
        self, request: Request, prompt: str | None, kind: RequestOutputKind, embedding: EmbeddingForm | None = None
    ) -> None:
        """Open the request in the ledger and expect its outputs. Raises InvalidRequestError when its id is in use.

        embedding: what is made of the vector, for a request that is pooled
        """
        sampling = request.sampling
        record = RequestRecord(
            request.request_id,
            len(request.prompt_token_ids),
            sampling.n,
            request.max_tokens,
            arrival_s=request.arrival_s,
            tenant=request.tenant,
        )
        self._ledger.open(record)
        wants_logprobs = sampling.logprobs is not None
        choices = {
            index: _Choice(
                TextEmitter(
                    self._tokenizer,
                    stop=sampling.stop,
                    include_stop_str_in_output=sampling.include_stop_str_in_output,
                    skip_special_tokens=sampling.skip_special_tokens,
                    shown_token_ids=sampling.shown_token_ids,
                    min_tokens=sampling.min_tokens,
                ),
                CompletionOutput(index, "", [], logprobs=[] if wants_logprobs else None),
                0.0 if wants_logprobs else None,
            )
            for index in range(sampling.n)
        }
        live = _Live(request, record, prompt, kind, choices, embedding=embedding)
        if sampling.prompt_logprobs is not None:
            live.prompt_logprobs = [None]
        self._live[request.request_id] = live

    def process(self, message: StepOutputs, now_s: float) -> Processed:
        """Take in one message of the core."""
        ledger = self._ledger
        if message.stats is not None:
            ledger.core_reported(message.stats)
        for request_id, estimated_s in zip(message.started, message.estimates_s, strict=True):
            ledger.started(request_id, message.started_s, estimated_s)
        deliveries: dict[str, RequestOutput] = {}
        aborts: list[tuple[str, int]] = []
        for output in message.outputs:
            live = self._live.get(output.request_id)
            if live is None or output.choice not in live.choices:
                continue  # it ended here first (stop string, abort); the core had a step under way
            try:
                delivery = self._take(live, output, now_s, aborts)
            except Exception as error:
                # Only this request ends: the neighbours' tokens in this very message must still be taken in.
                _logger.exception("output of request %r could not be handled", output.request_id)
                aborts.append((output.request_id, -1))
                delivery = self._end_all(live, FinishReason.ERROR, now_s, f"{type(error).__name__}: {error}")
            if delivery is None:
                continue
            known = deliveries.get(output.request_id)
            if known is None or live.kind is not RequestOutputKind.DELTA:
                deliveries[output.request_id] = delivery
            else:
                known.append(delivery)
        wanted = [out for out in deliveries.values() if out.finished or not self._only_at_the_end(out.request_id)]
        return Processed(wanted, aborts)

    def _only_at_the_end(self, request_id: str) -> bool:
        return self._live[request_id].kind is RequestOutputKind.FINAL_ONLY

    def abort(self, request_ids: Iterable[str], now_s: float) -> list[RequestOutput]:
        """End live requests by their owner's wish; returns their last deliveries. Unknown ids have ended already."""
        lives = [self._live[request_id] for request_id in request_ids if request_id in self._live]
        return [self._end_all(live, FinishReason.ABORT, now_s) for live in lives]

    def fail_all(self, reason: str, now_s: float) -> list[str]:
        """The core is gone: every live request ends with an error. Returns their ids."""
        request_ids = list(self._live)
        for request_id in request_ids:
            self._end_all(self._live[request_id], FinishReason.ERROR, now_s, reason)
        return request_ids

    def _take(self, live: _Live, output: TokenOutput, now_s: float, aborts: list[tuple[str, int]]) -> RequestOutput | None:
        """What one output of the core comes to; None when there is nothing to tell the owner yet."""
        if output.error is not None:
            aborts += [(output.request_id, index) for index in live.choices if index != output.choice]
            return self._end_all(live, FinishReason.ERROR, now_s, output.error)
        if output.finish_reason == _SHED:
            aborts.append((output.request_id, -1))
            return self._end_all(live, FinishReason.SHED, now_s, "the request waited too long (--queue-timeout)")
        if output.num_cached > live.num_cached or output.prompt_logprobs or output.num_preemptions:
            self._take_prompt_side(live, output)
        news = self._take_tokens(live, output, now_s, aborts)
        if not output.token_ids and not news.finished():
            return None
        if live.embedding is None or not output.pooled:
            return self._deliver(live, [news], now_s)
        pooled = live.embedding.apply_to(output.pooled)
        self._ledger.pooled(live.record)
        delivery = self._deliver(live, [news], now_s)
        delivery.pooled = pooled
        return delivery

    def _take_prompt_side(self, live: _Live, output: TokenOutput) -> None:
        if output.choice == 0:
            live.num_cached = max(live.num_cached, output.num_cached)
            live.record.num_cached_tokens = live.num_cached
            if output.prompt_logprobs and live.prompt_logprobs is not None:
                live.prompt_logprobs += with_text(output.prompt_logprobs, self._tokenizer.token_text)
        live.record.num_preemptions += output.num_preemptions

    def _take_tokens(self, live: _Live, output: TokenOutput, now_s: float, aborts: list[tuple[str, int]]) -> CompletionOutput:
        """Text and end of one choice's new tokens, as a delta."""
        choice = live.choices[output.choice]
        emitter = choice.emitter
        token_ids = output.token_ids
        by_token = output.finish_reason == _STOP
        # A token that ends the choice is no text, unless the request wants to see what stopped it.
        sampling = live.request.sampling
        num_text = len(token_ids) - (by_token and not sampling.include_stop_str_in_output) if sampling.detokenize else 0
        text = ""
        news = CompletionOutput(output.choice, "", token_ids, finish_reason=output.finish_reason)
        for index in range(num_text):
            text += emitter.push(token_ids[index])
            if emitter.stopped is not None:
                news.token_ids = token_ids[: index + 1]
                news.finish_reason, news.stop_reason = _STOP, emitter.stopped
                break
        if emitter.stopped is None and output.finish_reason is not None:
            text += emitter.finish()
            if by_token and output.stop_token_id in sampling.stop_token_ids:
                news.stop_reason = output.stop_token_id
            elif emitter.stopped is not None:  # what was held back completed a stop string
                news.finish_reason, news.stop_reason = _STOP, emitter.stopped
        if news.finish_reason == _TIMEOUT:
            news.finish_reason, news.stop_reason = _LENGTH, TIMEOUT_STOP_REASON
        news.text = text
        if output.num_drafted:
            live.record.num_drafted_tokens += output.num_drafted
            live.record.num_accepted_tokens += min(output.num_accepted, len(news.token_ids))
        if choice.cumulative_logprob is not None:
            news.logprobs = with_text(output.logprobs[: len(news.token_ids)], self._tokenizer.token_text)
            choice.cumulative_logprob += sum(entry.logprob for entry in news.logprobs)
            news.cumulative_logprob = choice.cumulative_logprob
        if news.token_ids:
            self._ledger.tokens(live.record, len(news.token_ids), now_s)
        if live.kind is not RequestOutputKind.DELTA:
            _accumulate(choice.total, news)
        if news.finish_reason is not None:
            if output.finish_reason is None:
                aborts.append((live.request.request_id, output.choice))
            choice.total.finish_reason, choice.total.stop_reason = news.finish_reason, news.stop_reason
            live.done[output.choice] = choice.total
            del live.choices[output.choice]
        return news

    def _deliver(self, live: _Live, news: list[CompletionOutput], now_s: float) -> RequestOutput:
        """A delivery in the request's output kind; closes the request when no choice runs any more."""
        finished = not live.choices
        if finished:
            self._close(live, _outcome(live.done.values()), now_s, None)
        request = live.request
        output = RequestOutput(request.request_id, live.prompt, request.prompt_token_ids, news, finished=finished)
        output.num_cached_tokens, output.metrics = live.num_cached, live.record
        if live.kind is RequestOutputKind.DELTA:
            if not live.prompt_logprobs_sent:
                output.prompt_logprobs, live.prompt_logprobs_sent = live.prompt_logprobs, True
            return output
        output.prompt_logprobs = live.prompt_logprobs
        if finished or live.kind is RequestOutputKind.CUMULATIVE:
            running = {index: choice.total for index, choice in live.choices.items()}
            output.outputs = [_snapshot(total) for _, total in sorted({**running, **live.done}.items())]
        return output

    def _end_all(self, live: _Live, reason: FinishReason, now_s: float, error: str | None = None) -> RequestOutput:
        """End every choice that still runs, with the text that was held back."""
        news = []
        for index, choice in live.choices.items():
            finish_reason = FinishReason.ABORT.value if reason is FinishReason.SHED else reason.value
            delta = CompletionOutput(index, choice.emitter.finish(), [], choice.cumulative_logprob, finish_reason=finish_reason)
            delta.logprobs = [] if choice.total.logprobs is not None else None
            _accumulate(choice.total, delta)
            live.done[index] = choice.total
            news.append(delta)
        live.choices.clear()
        self._close(live, reason, now_s, error)
        output = self._deliver(live, news, now_s)
        output.error = error
        return output

    def _close(self, live: _Live, outcome: FinishReason, now_s: float, error: str | None) -> None:
        """Forget the request and write its outcome; the second of two calls finds it closed."""
        if self._live.pop(live.request.request_id, None) is not None:
            self._ledger.close(live.request.request_id, outcome, now_s, error)


def _accumulate(total: CompletionOutput, delta: CompletionOutput) -> None:
    """total.append(delta), in place: `total` is ours alone, so its lists may grow instead of being copied."""
    total.text += delta.text
    total.token_ids += delta.token_ids
    total.cumulative_logprob = delta.cumulative_logprob
    if total.logprobs is not None and delta.logprobs is not None:
        total.logprobs += delta.logprobs
    total.finish_reason, total.stop_reason = delta.finish_reason, delta.stop_reason


def _snapshot(total: CompletionOutput) -> CompletionOutput:
    """A copy that later steps do not change."""
    logprobs = None if total.logprobs is None else list(total.logprobs)
    return CompletionOutput(
        total.index,
        total.text,
        list(total.token_ids),
        total.cumulative_logprob,
        logprobs,
        total.finish_reason,
        total.stop_reason,
    )


def _outcome(choices: Iterable[CompletionOutput]) -> FinishReason:
    """The outcome of a request is that of its choices; of several, the one that is least like a natural end."""
    reasons = {
        FinishReason.TIMEOUT
        if choice.finish_reason == _LENGTH and choice.stop_reason == TIMEOUT_STOP_REASON
        else FinishReason(choice.finish_reason)
        for choice in choices
    }
    order = (FinishReason.ERROR, FinishReason.ABORT, FinishReason.TIMEOUT, FinishReason.LENGTH, FinishReason.STOP)
    return next(reason for reason in order if reason in reasons)
