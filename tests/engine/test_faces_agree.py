"""The faces agree: streamed from a core process or generated in-process, a request has the same tokens, text and logprobs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fakes import write_model

from octavo import LLM, AsyncLLMEngine, EngineArgs, SamplingParams
from octavo.engine.frontend.outputs import CompletionOutput
from octavo.sampling_params import RequestOutputKind
from octavo.step import TokenLogprobs

OPTIONS = {"load_format": "dummy", "num_gpu_blocks_override": 24, "block_size": 8}
PROMPTS = ["a", "a longer prompt, over several blocks", "Grüße", "0123456789" * 5]
SAMPLING = [
    SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=3, max_tokens=40, logprobs=3),
    SamplingParams(seed=4, max_tokens=30, top_k=20, repetition_penalty=1.2, stop=["e", "th"]),
    SamplingParams(temperature=0.0, max_tokens=16, presence_penalty=1.0, logprobs=0),
]


def summary(choice: CompletionOutput) -> tuple[str, list[int], list[tuple[int, float, int]], str | None, int | str | None]:
    logprobs: list[TokenLogprobs] = list(choice.logprobs or [])
    values = [(entry.token_id, entry.logprob, entry.rank) for entry in logprobs]
    return choice.text, choice.token_ids, values, choice.finish_reason, choice.stop_reason


def test_streamed_from_a_core_process_equals_generated_in_process(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    args = EngineArgs(model=str(model), **OPTIONS)
    with LLM(str(model), **OPTIONS) as llm:
        whole = [summary(output.outputs[0]) for output in llm.generate(PROMPTS, SAMPLING, use_tqdm=False)]
        llm.llm_engine.check_integrity()

    async def streamed(engine: AsyncLLMEngine, prompt: str, sampling: SamplingParams) -> CompletionOutput:
        deltas = [output.outputs[0] async for output in engine.generate(prompt, sampling, output_kind=RequestOutputKind.DELTA)]
        joined = deltas[0]
        for delta in deltas[1:]:
            joined.append(delta)
        return joined

    async def test() -> list[CompletionOutput]:
        engine = await AsyncLLMEngine.from_engine_args(args)
        try:
            tasks = [streamed(engine, prompt, sampling) for prompt, sampling in zip(PROMPTS, SAMPLING, strict=True)]
            return list(await asyncio.gather(*tasks))
        finally:
            await engine.shutdown()

    assert [summary(choice) for choice in asyncio.run(test())] == whole
