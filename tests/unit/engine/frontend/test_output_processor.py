"""OutputProcessor: text, stop strings, logprobs, output kinds, and ends that happen once."""

from __future__ import annotations

import pytest
from tests.fakes import EOS, FakeWorker, fake_text, ids
from tests.unit.engine.rig import Rig

from octavo.engine.frontend.outputs import CompletionOutput, RequestOutput
from octavo.engine.wire.messages import CoreStats, StepOutputs, TokenOutput
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.step import TokenLogprobs


def scripted(
    script: str, sampling: SamplingParams, kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
) -> tuple[Rig, list[RequestOutput]]:
    rig = Rig(FakeWorker({"p": script}))
    rig.add("r", "p", sampling, kind)
    return rig, rig.run()["r"]


def message(*outputs: TokenOutput) -> StepOutputs:
    return StepOutputs(list(outputs), [], CoreStats(), 0.0)


def test_eos_ends_with_stop_and_leaves_no_text() -> None:
    _, outputs = scripted("hi", SamplingParams(max_tokens=9))
    choice = outputs[-1].outputs[0]
    assert (choice.text, choice.token_ids, choice.finish_reason, choice.stop_reason) == ("hi", [*ids("hi"), EOS], "stop", None)


def test_stop_token_id_is_reported_as_the_reason() -> None:
    _, outputs = scripted("hello", SamplingParams(max_tokens=9, stop_token_ids=ids("l")))
    choice = outputs[-1].outputs[0]
    assert (choice.text, choice.token_ids, choice.stop_reason) == ("he", ids("hel"), ord("l"))


def test_stop_token_text_is_included_on_request() -> None:
    sampling = SamplingParams(max_tokens=9, stop_token_ids=ids("l"), include_stop_str_in_output=True)
    _, outputs = scripted("hello", sampling)
    assert outputs[-1].outputs[0].text == "hel"


@pytest.mark.parametrize(("include", "text"), [(False, "one "), (True, "one two")])
def test_stop_string_over_several_tokens_ends_at_its_last_token(include: bool, text: str) -> None:
    sampling = SamplingParams(max_tokens=30, stop=["two"], include_stop_str_in_output=include)
    rig, outputs = scripted("one two three", sampling)
    choice = outputs[-1].outputs[0]
    assert (choice.text, choice.token_ids) == (text, ids("one two"))
    assert (choice.finish_reason, choice.stop_reason) == ("stop", "two")
    assert rig.ledger.totals.generation_tokens == len("one two")
    assert rig.worker.num_steps == len("one two")


def test_deltas_join_to_the_whole_and_never_leak_a_stop_prefix() -> None:
    sampling = SamplingParams(max_tokens=30, stop=["two!"])
    _, deltas = scripted("grüße two 한글 two!", sampling, RequestOutputKind.DELTA)
    _, whole = scripted("grüße two 한글 two!", sampling, RequestOutputKind.FINAL_ONLY)
    assert len(whole) == 1
    assert "".join(output.outputs[0].text for output in deltas) == whole[0].outputs[0].text == "grüße two 한글 "
    assert [t for output in deltas for t in output.outputs[0].token_ids] == whole[0].outputs[0].token_ids
    assert all("\ufffd" not in output.outputs[0].text for output in deltas)


def test_held_back_text_comes_out_at_the_length_limit() -> None:
    _, deltas = scripted("abtw more", SamplingParams(max_tokens=4, stop=["two"]), RequestOutputKind.DELTA)
    assert "".join(output.outputs[0].text for output in deltas) == "abtw"
    assert deltas[-1].outputs[0].finish_reason == "length"


def test_a_stop_string_beats_the_length_limit_in_the_same_step() -> None:
    _, outputs = scripted("abc", SamplingParams(max_tokens=3, stop=["c"]))
    choice = outputs[-1].outputs[0]
    assert (choice.text, choice.finish_reason, choice.stop_reason) == ("ab", "stop", "c")


def test_tokens_after_a_stop_string_in_one_message_are_dropped() -> None:
    rig = Rig()
    rig.add("r", "p", SamplingParams(max_tokens=9, stop=["b"]), RequestOutputKind.CUMULATIVE)
    processed = rig.outputs.process(message(TokenOutput("r", 0, ids("abc"))), 1.0)
    assert processed.outputs[0].outputs[0].token_ids == ids("ab") and processed.aborts == [("r", 0)]
    late = rig.outputs.process(message(TokenOutput("r", 0, ids("d"), finish_reason="length")), 2.0)
    assert late.outputs == [] and late.aborts == []
    assert rig.ledger.totals.generation_tokens == 2


def test_one_choice_stops_while_the_other_goes_on() -> None:
    rig = Rig()
    seed = next(s for s in range(100) if "q" in fake_text("p", 5, s, 0) and "q" not in fake_text("p", 20, s, 1))
    rig.add("r", "p", SamplingParams(n=2, max_tokens=20, seed=seed, stop=["q"]), RequestOutputKind.FINAL_ONLY)
    (output,) = rig.run()["r"]
    first, second = output.outputs
    assert (first.finish_reason, first.stop_reason) == ("stop", "q")
    assert (second.finish_reason, second.text) == ("length", fake_text("p", 20, seed, 1))
    assert rig.ledger.totals.finished.keys() and sum(rig.ledger.totals.finished.values()) == 1


def test_logprobs_come_one_per_token_and_read_like_a_dict() -> None:
    _, outputs = scripted("hi", SamplingParams(max_tokens=2, logprobs=2))
    choice = outputs[-1].outputs[0]
    assert choice.logprobs is not None and len(choice.logprobs) == len(choice.token_ids)
    first = choice.logprobs[0]
    assert (first.token_id, first.rank, list(first)) == (ord("h"), 3, [ord("h"), ord("i"), ord("j")])
    assert first[ord("h")].decoded_token == "h" and first[ord("i")].rank == 1
    assert choice.cumulative_logprob == pytest.approx(-1.0)


def test_without_logprobs_there_are_none() -> None:
    _, outputs = scripted("hi", SamplingParams(max_tokens=2))
    assert outputs[-1].outputs[0].logprobs is None and outputs[-1].outputs[0].cumulative_logprob is None


def test_prompt_logprobs_are_collected_over_chunks_and_come_once_in_deltas() -> None:
    rig = Rig()
    rig.add("r", "abc", SamplingParams(max_tokens=3, prompt_logprobs=0), RequestOutputKind.DELTA)

    def entry(letter: str) -> TokenLogprobs:
        return TokenLogprobs(ord(letter), -1.0, 1, [], [])

    assert rig.outputs.process(message(TokenOutput("r", 0, [], prompt_logprobs=[entry("b")])), 1.0).outputs == []
    (first,) = rig.outputs.process(message(TokenOutput("r", 0, ids("x"), prompt_logprobs=[entry("c")])), 2.0).outputs
    assert first.prompt_logprobs is not None and first.prompt_logprobs[0] is None
    assert [position.token_id for position in first.prompt_logprobs if position is not None] == ids("bc")
    (second,) = rig.outputs.process(message(TokenOutput("r", 0, ids("y"))), 3.0).outputs
    assert second.prompt_logprobs is None


def test_abort_hands_over_held_back_text_and_ends_once() -> None:
    rig = Rig()
    rig.add("r", "p", SamplingParams(max_tokens=9, stop=["xyz"]), RequestOutputKind.DELTA)
    rig.outputs.process(message(TokenOutput("r", 0, ids("axy"))), 1.0)
    (output,) = rig.outputs.abort(["r", "unknown"], 2.0)
    assert (output.outputs[0].text, output.outputs[0].finish_reason, output.finished) == ("xy", "abort", True)
    assert rig.outputs.fail_all("core lost", 3.0) == []
    assert rig.outputs.process(message(TokenOutput("r", 0, [1], finish_reason="stop")), 4.0).outputs == []
    assert sum(rig.ledger.totals.finished.values()) == 1


def test_a_nonsense_output_ends_its_own_request_only() -> None:
    rig = Rig()
    rig.add("bad", "p", SamplingParams(max_tokens=9))
    rig.add("good", "p", SamplingParams(max_tokens=9))
    bad = TokenOutput("bad", 0, ["x"])  # type: ignore[list-item]
    processed = rig.outputs.process(message(bad, TokenOutput("good", 0, ids("a"))), 1.0)
    by_id = {output.request_id: output for output in processed.outputs}
    assert by_id["bad"].error is not None and by_id["good"].outputs[0].text == "a"
    assert ("bad", -1) in processed.aborts


def test_cumulative_outputs_do_not_change_afterwards() -> None:
    _, outputs = scripted("abc", SamplingParams(max_tokens=3))
    assert [output.outputs[0].text for output in outputs] == ["a", "ab", "abc"]
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1, 2, 3]


def test_deltas_can_be_joined() -> None:
    first = RequestOutput("r", None, [1], [CompletionOutput(0, "a", [1])])
    first.append(
        RequestOutput("r", None, [1], [CompletionOutput(0, "b", [2], finish_reason="stop"), CompletionOutput(1, "c", [3])])
    )
    assert [(choice.text, choice.token_ids) for choice in first.outputs] == [("ab", [1, 2]), ("c", [3])]
    assert first.outputs[0].finish_reason == "stop"


def test_without_detokenize_there_are_tokens_and_no_text() -> None:
    for kind in RequestOutputKind:
        _, deliveries = scripted("some text", SamplingParams(max_tokens=6, detokenize=False), kind)
        assert all(choice.text == "" for delivery in deliveries for choice in delivery.outputs)
        assert deliveries[-1].outputs[0].finish_reason == "length"
        if kind is not RequestOutputKind.DELTA:
            assert len(deliveries[-1].outputs[0].token_ids) == 6
