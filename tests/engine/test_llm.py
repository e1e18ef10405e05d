"""LLM and LLMEngine over the real worker with a tiny random model."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import ids, write_model

from octavo import LLM, LLMEngine, SamplingParams
from octavo.engine.args import EngineArgs
from octavo.engine.frontend.beam_search import BeamSearchParams
from octavo.engine.frontend.outputs import RequestOutput
from octavo.engine.frontend.prompt import Prompt
from octavo.errors import ConfigError, ContextLengthError, EngineDeadError, InvalidRequestError, LoadError
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import RequestOutputKind

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
CHAT = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def llm(model: str) -> LLM:
    return LLM(model, load_format="dummy", num_gpu_blocks_override=64, max_num_seqs=8)


def token_ids(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def test_generate_keeps_the_order_of_prompts_and_equals_one_at_a_time(llm: LLM) -> None:
    prompts = [f"prompt number {index} " * (index + 1) for index in range(10)]
    together = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert [output.prompt for output in together] == prompts
    assert token_ids(together) == [token_ids(llm.generate(prompt, GREEDY, use_tqdm=False))[0] for prompt in prompts]
    assert all(output.finished and output.outputs[0].finish_reason == "length" for output in together)
    llm.llm_engine.check_integrity()


def test_generate_takes_ids_and_one_sampling_params_per_prompt(llm: LLM) -> None:
    params = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in (1, 3)]
    prompts: list[Prompt] = [ids("abc"), {"prompt_token_ids": ids("de")}]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [len(found) for found in token_ids(outputs)] == [1, 3]
    assert token_ids(llm.generate(ids("abc"), params[0], use_tqdm=False)) == token_ids(outputs)[:1]


def test_sampled_choices_differ_and_repeat_with_the_seed(llm: LLM) -> None:
    sampling = SamplingParams(n=3, seed=5, max_tokens=8, ignore_eos=True)
    first, again = (llm.generate("x", sampling, use_tqdm=False)[0].outputs for _ in range(2))
    assert [choice.token_ids for choice in first] == [choice.token_ids for choice in again]
    assert len({tuple(choice.token_ids) for choice in first}) == 3


def test_logprobs_and_prompt_logprobs_have_one_entry_per_token(llm: LLM) -> None:
    sampling = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True, logprobs=2, prompt_logprobs=1)
    output = llm.generate("a prompt", sampling, use_tqdm=False)[0]
    assert output.prompt_logprobs is not None and output.prompt_logprobs[0] is None
    chosen = [entry.token_id for entry in output.prompt_logprobs if entry is not None]
    assert chosen == output.prompt_token_ids[1:]
    choice = output.outputs[0]
    assert choice.logprobs is not None and [entry.token_id for entry in choice.logprobs] == choice.token_ids
    assert all(entry.rank == 1 and len(entry) == 2 for entry in choice.logprobs)
    assert choice.cumulative_logprob == pytest.approx(sum(entry.logprob for entry in choice.logprobs))


def test_chat_renders_the_template(llm: LLM) -> None:
    messages = [{"role": "user", "content": "hi"}]
    (output,) = llm.chat(messages, GREEDY, use_tqdm=False)
    assert bytes(output.prompt_token_ids).decode() == "[user]hi[assistant]"
    assert len(llm.chat([messages, messages], GREEDY, use_tqdm=False)) == 2


def test_the_form_of_content_can_be_chosen(llm: LLM) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    listed = "[{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]"
    for form, prompt in (("auto", "a\nb"), ("string", "a\nb"), ("openai", listed)):
        (output,) = llm.chat(messages, GREEDY, False, None, template, form)
        assert output.prompt == bytes(output.prompt_token_ids).decode() == prompt
    with pytest.raises(InvalidRequestError, match="must be one of auto, string, openai"):
        llm.chat(messages, GREEDY, chat_template_content_format="parts")
    (output,) = llm.chat(messages, GREEDY, False, chat_template="{{ documents[0].title }}!", documents=[{"title": "D"}])
    assert output.prompt == "D!"
    with pytest.raises(InvalidRequestError, match="not valid Jinja"):
        llm.chat(messages, GREEDY, chat_template="{% if %}")


def test_a_callable_makes_the_progress_bar(llm: LLM) -> None:
    made: list[tuple[dict[str, object], list[int], list[bool]]] = []

    class Bar:
        def __init__(self, **options: object) -> None:
            made.append((options, [], []))

        def update(self, count: int) -> None:
            made[-1][1].append(count)

        def close(self) -> None:
            made[-1][2].append(True)

    llm.generate(["a", "b", "c"], GREEDY, use_tqdm=Bar)
    assert made == [({"total": 3, "desc": "Processed prompts", "dynamic_ncols": True}, [1, 1, 1], [True])]


def test_a_long_prompt_is_cut_where_that_is_asked_for(llm: LLM) -> None:
    text = "0123456789" * 40
    for asked, kept in ((7, 7), (-1, 256 - 12), (256 - 1, 255)):
        params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, truncate_prompt_tokens=asked)
        for prompt in (text, ids(text)):
            (output,) = llm.generate([prompt], params, use_tqdm=False)
            assert output.prompt_token_ids == ids(text)[-kept:]
        assert params.truncate_prompt_tokens == asked
    for wrong in (0, 257):
        with pytest.raises(InvalidRequestError, match=f"truncate_prompt_tokens is {wrong}; it must be 1 to 256"):
            llm.generate("a", SamplingParams(truncate_prompt_tokens=wrong), use_tqdm=False)


def test_outputs_have_the_fields_of_vllm(llm: LLM) -> None:
    (output,) = llm.generate("abc", SamplingParams(temperature=0, max_tokens=3, ignore_eos=True), use_tqdm=False)
    assert (output.prompt, output.prompt_token_ids, output.prompt_logprobs) == ("abc", ids("abc"), None)
    assert output.finished and output.num_cached_tokens == 0 and output.request_id
    choice = output.outputs[0]
    assert (choice.index, choice.finish_reason, choice.stop_reason, choice.logprobs) == (0, "length", None, None)
    assert choice.finished() and len(choice.token_ids) == 3 and choice.cumulative_logprob is None
    times = output.metrics
    assert times is not None and times.num_generation_tokens == 3 and times.first_token_latency >= 0
    assert times.queued_ts <= times.scheduled_ts <= times.first_token_ts <= times.last_token_ts


def test_a_message_without_content_has_an_empty_one(llm: LLM) -> None:
    for message in ({"role": "user"}, {"role": "user", "content": None}, {"role": "user", "tool_calls": None}):
        (output,) = llm.chat([message], GREEDY, use_tqdm=False)
        assert bytes(output.prompt_token_ids).decode() == "[user][assistant]"
    with pytest.raises(InvalidRequestError, match="role"):
        llm.chat([{"content": "x"}], GREEDY, use_tqdm=False)


WRONG_PROMPTS: tuple[Any, ...] = (5, None, {1}, iter("ab"))
WRONG_CHATS: tuple[Any, ...] = (5, None, "hi", {"role": "user", "content": "x"}, [5], [[5]], [], [[]])
WRONG_KWARGS: tuple[Any, ...] = (5, [1], {5: 1})
WRONG_ARGUMENTS: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    *[("prompts", method, (value,), {}) for method in ("generate", "embed", "encode") for value in WRONG_PROMPTS],
    ("data_1", "score", (5, "a"), {}),
    ("data_2", "score", ("a", None), {}),
    ("sampling_params", "generate", ("a", 5), {}),
    ("sampling_params", "generate", (["a", "b"], [GREEDY, 5]), {}),
    ("priority", "generate", ("a",), {"priority": ["x"]}),
    ("pooling_params", "encode", ("a", [1]), {}),
    ("pooling_params", "embed", ("a",), {"pooling_params": [None]}),
    ("pooling_params", "score", ("a", "b"), {"pooling_params": "x"}),
    ("truncate_prompt_tokens", "embed", ("a",), {"truncate_prompt_tokens": "x"}),
    ("params", "beam_search", ("a", 5), {}),
    ("params", "beam_search", ("a", GREEDY), {}),
    ("prompts", "beam_search", (5, BeamSearchParams(2, 3)), {}),
    *[("messages", "chat", (value,), {}) for value in WRONG_CHATS],
    ("tools", "chat", (CHAT,), {"tools": 5}),
    ("tools", "chat", (CHAT,), {"tools": "x"}),
    ("documents", "chat", (CHAT,), {"documents": 5}),
    ("documents", "chat", (CHAT,), {"documents": "x"}),
    *[("chat_template_kwargs", "chat", (CHAT,), {"chat_template_kwargs": value}) for value in WRONG_KWARGS],
    ("chat_template", "chat", (CHAT,), {"chat_template": 5}),
]


@pytest.mark.parametrize(("param", "method", "args", "kwargs"), WRONG_ARGUMENTS)
def test_an_argument_of_another_type_is_refused_by_name(
    llm: LLM, param: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError, match=param) as caught:
        getattr(llm, method)(*args, **kwargs)
    assert caught.value.param == param and len(caught.value.message) < 300
    assert not llm.llm_engine.has_unfinished_requests()


def test_the_engine_refuses_arguments_of_another_type_by_name(llm: LLM) -> None:
    unchecked: Any = 5
    engine = llm.llm_engine
    calls: list[tuple[str, Callable[[], None]]] = [
        ("request_ids", lambda: engine.abort_request(unchecked)),
        ("options", lambda: engine.add_request("x", "a", GREEDY, unchecked)),
        ("sampling_params", lambda: engine.add_request("x", "a", unchecked)),
        ("request_id", lambda: engine.add_request(unchecked, "a", GREEDY)),
    ]
    for param, call in calls:
        with pytest.raises(InvalidRequestError) as caught:
            call()
        assert caught.value.param == param
    assert not engine.has_unfinished_requests()


@pytest.mark.parametrize("field", ["dimensions", "truncate_prompt_tokens", "normalize", "use_activation"])
def test_pooling_params_are_checked_when_they_are_made(field: str) -> None:
    values: tuple[Any, ...] = ("x", 2.5, [1])
    for value in values:
        with pytest.raises(InvalidRequestError, match=f"{field} is .*; it must be"):
            PoolingParams(**{field: value})


def test_a_cache_of_one_block_serves_one_sequence_after_the_other(model: str) -> None:
    with LLM(model, load_format="dummy", num_gpu_blocks_override=1, max_num_seqs=8) as small:
        assert small.llm_engine.max_model_len == 16
        outputs = small.generate([ids("abc"), ids("abc")], SamplingParams(n=2, seed=1, max_tokens=8, ignore_eos=True))
        first, second = ([choice.token_ids for choice in output.outputs] for output in outputs)
        assert first == second and len(first) == 2
        small.llm_engine.check_integrity()


def test_a_refused_prompt_names_itself_and_leaves_nothing_behind(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="prompt 1: the prompt is empty"):
        llm.generate(["fine", ""], GREEDY, use_tqdm=False)
    with pytest.raises(ContextLengthError):
        llm.generate("x" * 300, GREEDY, use_tqdm=False)
    with pytest.raises(InvalidRequestError, match="2 prompts but 1"):
        llm.generate(["a", "b"], [GREEDY], use_tqdm=False)
    assert not llm.llm_engine.has_unfinished_requests()
    llm.llm_engine.check_integrity()
    assert llm.generate([], GREEDY, use_tqdm=False) == []


def test_defaults_come_from_the_model(llm: LLM) -> None:
    assert llm.get_default_sampling_params() == SamplingParams(**llm.llm_engine.sampling_advice.values)  # type: ignore[arg-type]
    assert llm.get_tokenizer().encode("a") == ids("a")


def test_two_engines_in_one_process_do_not_mix(model: str, llm: LLM) -> None:
    with LLM(model, load_format="dummy", num_gpu_blocks_override=32, block_size=32, num_threads=1) as other:
        prompts = ["one", "two and more"]
        for engine in (llm.llm_engine, other.llm_engine):
            for prompt in prompts:
                engine.add_request(prompt, prompt, GREEDY, output_kind=RequestOutputKind.FINAL_ONLY)
        finished: list[dict[str, list[int]]] = [{}, {}]
        while any(engine.has_unfinished_requests() for engine in (llm.llm_engine, other.llm_engine)):
            for found, engine in zip(finished, (llm.llm_engine, other.llm_engine), strict=True):
                found.update({output.request_id: output.outputs[0].token_ids for output in engine.step()})
        assert finished[0] == finished[1] and len(finished[0]) == 2


def test_close_frees_the_engine_and_can_be_repeated(model: str) -> None:
    llm = LLM(model, load_format="dummy", num_gpu_blocks_override=8)
    llm.close()
    llm.close()
    with pytest.raises(EngineDeadError):
        llm.generate("x", GREEDY, use_tqdm=False)
    engine = LLM(model, load_format="dummy", num_gpu_blocks_override=8).llm_engine
    gc.collect()
    with pytest.raises(EngineDeadError):
        engine.add_request("r", "x", GREEDY)


def test_engine_streams_cumulative_outputs_and_aborts(model: str) -> None:
    args = EngineArgs(model=model, load_format="dummy", num_gpu_blocks_override=32)
    engine = LLMEngine.from_engine_args(args)
    engine.add_request("a", "abc", GREEDY)
    engine.add_request("b", "abd", GREEDY)
    lengths = [len(output.outputs[0].token_ids) for _ in range(3) for output in engine.step() if output.request_id == "a"]
    assert lengths == [1, 2, 3]
    engine.abort_request("b")
    assert engine.get_num_unfinished_requests() == 1
    last = {output.request_id: output for output in engine.step()}
    assert last["b"].outputs[0].finish_reason == "abort" and last["b"].finished
    while engine.has_unfinished_requests():
        engine.step()
    engine.check_integrity()
    engine.shutdown()


def test_clear_errors_instead_of_a_model(model: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError):
        LLM(str(tmp_path / "nothing-here.gguf"))
    with pytest.raises(ConfigError, match="did you mean block_size"):
        LLM(model, blocksize=16)
    with pytest.raises(ConfigError, match="neither Jinja source nor a readable file"):
        LLM(model, load_format="dummy", chat_template="nothing-here.jinja")


def test_a_chat_template_may_be_a_file(model: str, tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text("own:{{ messages[0].content }}")
    with LLM(model, load_format="dummy", num_gpu_blocks_override=8, chat_template=str(tmp_path / "own.jinja")) as llm:
        (output,) = llm.chat([{"role": "user", "content": "hi"}], GREEDY, use_tqdm=False)
        assert bytes(output.prompt_token_ids).decode() == "own:hi"
