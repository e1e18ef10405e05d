"""What vLLM's documentation shows first, in our own words: only the import says octavo. On the embedded model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, BeamSearchParams, SamplingParams, TextPrompt, TokensPrompt


@pytest.fixture(scope="module")
def llm(smollm2_gguf: Path) -> Iterator[LLM]:
    """With the options that scripts carry along from GPUs."""
    with LLM(
        model=str(smollm2_gguf),
        tensor_parallel_size=1,
        dtype="auto",
        max_model_len="1k",
        gpu_memory_utilization=0.5,
        swap_space=0,
        enforce_eager=False,
        trust_remote_code=False,
        quantization=None,
        seed=0,
        disable_log_stats=True,
        limit_mm_per_prompt={},
        max_num_seqs=16,
    ) as llm:
        yield llm


def test_quickstart(llm: LLM) -> None:
    prompts = ["Hello, my name is", "The president of the United States is", "The capital of France is", "The future of AI is"]
    sampling_params = SamplingParams(temperature=0.8, top_p=0.95)
    outputs = llm.generate(prompts, sampling_params)
    for prompt, output in zip(prompts, outputs, strict=True):
        assert output.prompt == prompt and output.finished
        assert 0 < len(output.outputs[0].token_ids) <= 16 and isinstance(output.outputs[0].text, str)


def test_chat(llm: LLM) -> None:
    conversation = [
        {"role": "system", "content": "You are a helpful assistant"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello! How can I assist you today?"},
        {"role": "user", "content": "Write one sentence about the sea."},
    ]
    sampling_params = SamplingParams(temperature=0, max_tokens=24)
    (one,) = llm.chat(conversation, sampling_params, use_tqdm=False)
    many = llm.chat([conversation] * 3, sampling_params=sampling_params, use_tqdm=True)
    assert len(many) == 3 and {output.outputs[0].text for output in many} == {one.outputs[0].text}
    tokenizer = llm.get_tokenizer()
    prompt = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    assert llm.generate(prompt, sampling_params)[0].outputs[0].text == one.outputs[0].text
    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    (plain,) = llm.chat(conversation, sampling_params, chat_template=template)
    assert tokenizer.decode(plain.prompt_token_ids).startswith("You are a helpful assistant\nHello\n")


def test_chat_with_a_form_for_each_conversation(llm: LLM) -> None:
    conversations = [[{"role": "user", "content": text}] for text in ("Is it so?", "How old?", "A greeting?")]
    forms: list[dict[str, Any]] = [{"choice": ["yes", "no"]}, {"regex": r"\d{2}"}, {"choice": ["안녕 👋"]}]
    params = [SamplingParams(temperature=1, seed=2, max_tokens=30, structured_outputs=form) for form in forms]  # type: ignore[arg-type]
    answers = [output.outputs[0].text for output in llm.chat(conversations, params, use_tqdm=False)]
    assert answers[0] in ("yes", "no") and answers[1].isdigit() and len(answers[1]) == 2 and answers[2] == "안녕 👋"


def test_beam_search(llm: LLM) -> None:
    params = BeamSearchParams(beam_width=3, max_tokens=5, ignore_eos=True)
    (output,) = llm.beam_search([{"prompt": "The capital of France is"}], params)
    best = output.sequences[0]
    assert len(output.sequences) == 3 and best.text is not None and " Paris" in best.text
    assert best.text == llm.get_tokenizer().decode(best.tokens)
    assert [sequence.cum_logprob for sequence in output.sequences] == sorted(
        (sequence.cum_logprob for sequence in output.sequences), reverse=True
    )


def test_sampling_per_prompt(llm: LLM) -> None:
    prompts = ["One, two, three,", "One, two, three,", "Once upon a time"]
    bias: Any = {"0": -100}  # JSON has no numbers for keys
    params = [
        SamplingParams(temperature=0, max_tokens=4),
        SamplingParams(temperature=0, max_tokens=12, stop=["six"]),
        SamplingParams(n=2, temperature=1.0, top_k=50, seed=7, max_tokens=8, logit_bias=bias),
    ]
    short, stopped, two = llm.generate(prompts, params, use_tqdm=False)
    assert len(short.outputs[0].token_ids) == 4 and short.outputs[0].finish_reason == "length"
    assert "six" not in stopped.outputs[0].text
    assert [choice.index for choice in two.outputs] == [0, 1]
    greedy = llm.generate("One, two, three,", SamplingParams(n=2, temperature=0, max_tokens=4))[0]
    assert [choice.token_ids for choice in greedy.outputs] == [short.outputs[0].token_ids] * 2


def test_llm_options_and_the_models_own_sampling(llm: LLM, smollm2_gguf: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert llm.llm_engine.max_model_len == 1000
    params = llm.get_default_sampling_params()
    assert (params.temperature, params.top_p) == (0.2, 0.9)
    params.max_tokens = 5
    assert len(llm.generate("Hi", params, use_tqdm=False)[0].outputs[0].token_ids) == 5
    with pytest.raises(ValueError, match="tensor_parallel_size=2 is not supported"):
        LLM(model=str(smollm2_gguf), tensor_parallel_size=2)
    assert not caplog.records


def test_prompt_tokens(llm: LLM) -> None:
    tokenizer = llm.get_tokenizer()
    token_ids = tokenizer.encode("The capital of France is")
    params = SamplingParams(temperature=0, max_tokens=6)
    text = "The capital of France is"
    prompts: list[str | list[int] | TokensPrompt | TextPrompt] = [text, token_ids]
    prompts += [TokensPrompt(prompt_token_ids=token_ids), TextPrompt(prompt=text)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert all(output.prompt_token_ids == token_ids for output in outputs)
    assert len({output.outputs[0].text for output in outputs}) == 1
    assert tokenizer.decode(outputs[1].outputs[0].token_ids) == outputs[0].outputs[0].text
    with pytest.raises(ValueError, match="token id 49152; the model has ids 0 to 49151"):
        llm.generate(TokensPrompt(prompt_token_ids=[49152]), params)


def test_logprobs_loop(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=5, logprobs=3, prompt_logprobs=1)
    (output,) = llm.generate("The capital of France is", params, use_tqdm=False)
    choice = output.outputs[0]
    assert choice.logprobs is not None and output.prompt_logprobs is not None and choice.cumulative_logprob is not None
    total = 0.0
    for token_id, position in zip(choice.token_ids, choice.logprobs, strict=True):
        assert isinstance(position, Mapping) and len(position) == 3
        total += position[token_id].logprob
        ranked = sorted(position.items(), key=lambda item: item[1].logprob, reverse=True)
        assert [entry.rank for _, entry in ranked] == [1, 2, 3] and ranked[0][0] == token_id
        assert all(entry.decoded_token == llm.get_tokenizer().decode(other) for other, entry in ranked)
        assert position.get(10**9) is None and dict(position)[token_id].rank == 1
    assert total == pytest.approx(choice.cumulative_logprob)
    assert output.prompt_logprobs[0] is None and len(output.prompt_logprobs) == len(output.prompt_token_ids)


def test_bad_words_do_not_appear(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=24)
    free = llm.generate("One, two, three, four, five, six,", params, use_tqdm=False)[0].outputs[0].text
    word = free.split(",")[0].strip()
    assert word == "seven"
    barred = SamplingParams(temperature=0, max_tokens=24, bad_words=[word])
    text = llm.generate("One, two, three, four, five, six,", barred, use_tqdm=False)[0].outputs[0].text
    assert word not in text and text
    both = llm.generate(["One, two, three, four, five, six,"] * 2, [barred, params], use_tqdm=False)
    assert [output.outputs[0].text for output in both] == [text, free]


def test_priority_and_adapters(llm: LLM) -> None:
    params = SamplingParams(max_tokens=1)
    assert len(llm.generate(["a", "b"], params, lora_request=None, priority=[0, 0])) == 2
    with pytest.raises(ValueError, match="priority is 1, but the scheduler policy fcfs would ignore it"):
        llm.generate("a", params, priority=1)
    with pytest.raises(ValueError, match="merge it into the weights"):
        llm.generate("a", params, lora_request=object())  # type: ignore[arg-type]
