"""Embeddings by decoders: against the reference backend's hidden states, and the same bytes however they are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import tiny_models
from tests.checkpoints import parameter_shapes
from tests.fakes import byte_backend, ids, write_model

from octavo import LLM, LLMEngine, PoolingParams, SamplingParams
from octavo.config.engine import EngineConfig
from octavo.engine.args import EngineArgs
from octavo.engine.core.build import BuiltCore, build_core
from octavo.engine.core.retry import Worker
from octavo.errors import ConfigError, InvalidRequestError
from octavo.loader.checkpoint import open_config
from octavo.ops.arrays import F32
from octavo.pooling_params import POOLING_KINDS
from octavo.step import Relayout, RelayoutResult, StepPlan, StepResult

TEXTS = ["a", "the quick brown fox", "the quick brown fox jumps over the lazy dog " * 4, "x" * 200, "the quick brown"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("model")))


def tiny(model: str, kind: str = "last", **options: Any) -> LLM:
    return LLM(model, load_format="dummy", pooler_config=f'{{"pooling_type": "{kind}"}}', **{"num_threads": 2, **options})


def vectors(llm: LLM, prompts: list[str], params: PoolingParams | None = None) -> list[F32]:
    return [output.outputs.data for output in llm.encode(prompts, params, use_tqdm=False)]


@pytest.mark.parametrize("kind", POOLING_KINDS)
def test_the_vector_is_pooled_from_the_hidden_states(model: str, kind: str) -> None:
    raw = PoolingParams(normalize=False)
    with tiny(model, kind, device="reference") as llm:
        found = vectors(llm, TEXTS[:3], raw)
        # Of the first n tokens the hidden state of the last one is row n - 1: attention is causal.
        with tiny(model, device="reference") as by_row:
            prompt = ids(TEXTS[1])
            prefixes = [prompt[:end] for end in range(1, len(prompt) + 1)]
            rows = np.stack([output.outputs.data for output in by_row.encode(prefixes, raw, use_tqdm=False)])
    expected = {"last": rows[-1], "cls": rows[0], "mean": rows.mean(axis=0)}[kind]
    np.testing.assert_allclose(found[1], expected, rtol=1e-5, atol=1e-6)
    with tiny(model, kind) as native:
        for ours, plain in zip(vectors(native, TEXTS[:3], raw), found, strict=True):
            np.testing.assert_allclose(ours, plain, atol=2e-4)


@pytest.mark.parametrize("kind", POOLING_KINDS)
def test_no_byte_tells_how_it_was_computed(model: str, kind: str) -> None:
    with tiny(model, kind) as llm:
        alone = [vectors(llm, [text])[0].tobytes() for text in TEXTS]
        assert [vector.tobytes() for vector in vectors(llm, TEXTS)] == alone, "batched, from a warm prefix cache"
        (before,) = llm.generate("once", GREEDY, use_tqdm=False)
        engine = llm.llm_engine
        engine.add_request("chat", "once", GREEDY)
        for index, text in enumerate(TEXTS):
            engine.add_request(f"e{index}", text, PoolingParams())
        done = {output.request_id: output for _ in range(200) for output in engine.step() if output.finished}
        assert done["chat"].outputs[0].token_ids == before.outputs[0].token_ids
        pooled = [done[f"e{index}"].pooled for index in range(len(TEXTS))]
        assert [vector.tobytes() for vector in pooled if vector is not None] == alone, "beside a chat"
        engine.check_integrity()
    settings: list[dict[str, Any]] = [
        {"max_num_batched_tokens": 16, "chunked_prefill_size": 7, "max_num_seqs": 4, "num_threads": 1},
        {"enforce_eager": True, "enable_prefix_caching": False},
        {"block_size": 8, "max_num_batched_tokens": 1000, "chunked_prefill_size": 1000},
    ]
    for options in settings:
        with tiny(model, kind, **options) as llm:
            assert [vector.tobytes() for vector in vectors(llm, TEXTS * 2)] == alone * 2, options


@pytest.mark.parametrize("kind", POOLING_KINDS)
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption_changes_no_byte(model: str, kind: str, mode: str) -> None:
    texts = ["q" * 72, "r" * 70, "s" * 60]
    with tiny(model, kind) as llm:
        alone = [vector.tobytes() for vector in vectors(llm, texts)]
    small = {"max_model_len": 96, "num_gpu_blocks_override": 12, "block_size": 8, "max_num_batched_tokens": 16}
    with tiny(model, kind, **small, chunked_prefill_size=8, max_num_seqs=8, admission="eager", preemption_mode=mode) as llm:
        engine = llm.llm_engine
        for name in ("a", "b", "c"):  # they grow, and take the blocks of a prompt that is half computed
            engine.add_request(name, name, SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True))
        for index, text in enumerate(texts):
            engine.add_request(str(index), text, PoolingParams())
        found: dict[str, bytes] = {}
        num_preemptions = 0
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.pooled is not None:
                    assert output.metrics is not None
                    found[output.request_id] = output.pooled.tobytes()
                    num_preemptions += output.metrics.num_preemptions
        assert [found[str(index)] for index in range(len(texts))] == alone
        assert num_preemptions > 0, "no embedding was preempted"
        assert (engine.stats().num_swap_preemptions > 0) == (mode == "swap" and kind == "last")
        engine.check_integrity()


class Flaky:
    """A worker whose first step with a prompt half computed beside another sequence fails as a whole."""

    def __init__(self, inner: Worker) -> None:
        self._inner = inner
        self._plan: StepPlan
        self.num_failures = 0

    def start(self, plan: StepPlan) -> None:
        self._plan = plan
        self._inner.start(plan)

    def finish(self) -> StepResult:
        shares = self._plan.sequences
        if not self.num_failures and len(shares) > 1 and any(share.num_computed > 0 for share in shares):
            self.num_failures += 1
            self._inner.finish()
            raise FloatingPointError("the step failed")
        return self._inner.finish()

    def drop(self) -> None:
        self._inner.drop()

    def reconfigure(self, relayout: Relayout) -> RelayoutResult:
        return self._inner.reconfigure(relayout)


@pytest.mark.parametrize("kind", POOLING_KINDS)
def test_a_failed_step_changes_no_byte(model: str, kind: str) -> None:
    texts = ["q" * 60, "r" * 50]
    with tiny(model, kind) as llm:
        alone = [vector.tobytes() for vector in vectors(llm, texts)]
    workers: list[Flaky] = []

    def flaky(inner: Worker) -> Flaky:
        workers.append(Flaky(inner))
        return workers[0]

    assert in_small_steps(model, kind, texts, lambda config: build_core(config, flaky)) == alone
    assert workers[0].num_failures == 1


@pytest.mark.parametrize("kind", POOLING_KINDS)
def test_steps_in_flight_change_no_byte(model: str, kind: str) -> None:
    texts = ["q" * 60, "r" * 50, "s", "t" * 9]
    with tiny(model, kind) as llm:
        alone = [vector.tobytes() for vector in vectors(llm, texts)]
    for depth in (2, 3):
        assert in_small_steps(model, kind, texts, partial(build_core, depth=depth)) == alone


def in_small_steps(model: str, kind: str, texts: list[str], make_core: Callable[[EngineConfig], BuiltCore]) -> list[bytes]:
    """The vectors of texts whose prompts take many steps, by an engine with this core."""
    small = {"max_num_batched_tokens": 16, "chunked_prefill_size": 8, "max_num_seqs": 4}
    args = EngineArgs(model, load_format="dummy", pooler_config=f'{{"pooling_type": "{kind}"}}', **small)
    engine = LLMEngine(args.create_engine_config(), make_core=make_core)
    for index, text in enumerate(texts):
        engine.add_request(str(index), text, PoolingParams())
    found: dict[str, bytes] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            assert output.error is None and output.pooled is not None
            found[output.request_id] = output.pooled.tobytes()
    engine.check_integrity()
    engine.shutdown()
    return [found[str(index)] for index in range(len(texts))]


def test_one_that_reads_every_row_takes_nothing_from_the_prefix_cache(model: str) -> None:
    for kind, hits in (("last", 175), ("mean", 0), ("cls", 0)):
        with tiny(model, kind) as llm:
            first, again = (llm.encode(TEXTS[2], use_tqdm=False)[0] for _ in range(2))
            assert (first.num_cached_tokens, again.num_cached_tokens) == (0, hits)


def test_dimensions_and_length(model: str) -> None:
    with tiny(model) as llm:
        (whole,) = vectors(llm, ["abc"], PoolingParams(normalize=False))
        (short,) = vectors(llm, ["abc"], PoolingParams(dimensions=5))
        (raw,) = vectors(llm, ["abc"], PoolingParams(dimensions=5, use_activation=False))
        assert len(whole) == 32 and raw.tolist() == whole[:5].tolist()
        np.testing.assert_allclose(short, raw / np.linalg.norm(raw), rtol=1e-6)
        for wrong, name in (
            ({"dimensions": 0}, "dimensions"),
            ({"dimensions": 33}, "dimensions"),
            ({"dimensions": True}, "dimensions"),
            ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
            ({"truncate_prompt_tokens": 257}, "truncate_prompt_tokens"),
            ({"task": "classify"}, "task"),
            ({"normalize": True, "use_activation": False}, "normalize"),
            ({"normalize": "yes"}, "normalize"),
        ):
            with pytest.raises(InvalidRequestError, match=name) as caught:
                llm.embed("abc", pooling_params=PoolingParams(**wrong), use_tqdm=False)
            assert caught.value.param == name
        assert not llm.llm_engine.has_unfinished_requests()


def test_a_prompt_may_fill_the_context(model: str) -> None:
    with tiny(model, "mean") as llm:
        assert len(vectors(llm, ["y" * 256])) == 1
        with pytest.raises(InvalidRequestError, match="maximum context length is 256 tokens; the prompt has 257"):
            vectors(llm, ["y" * 257])
        (cut,) = llm.embed("y" * 300, truncate_prompt_tokens=-1, use_tqdm=False)
        (given,) = llm.embed(ids("z" * 300), truncate_prompt_tokens=9, use_tqdm=False)
        assert (len(cut.prompt_token_ids), given.prompt_token_ids) == (256, ids("z" * 9))


@pytest.mark.parametrize(
    "config", ['{"pooling_type": "MAX"}', '{"pooling": "LAST"}', '{"normalize": 1}', '"LAST"', "{", '{"pooling_type": 3}']
)
def test_a_pooler_config_that_says_nothing_known_is_refused(model: str, config: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LLMEngine.from_engine_args(EngineArgs(model, load_format="dummy", pooler_config=config))
    assert caught.value.param == "pooler_config"


@pytest.mark.parametrize("name", ["llama-gqa", "mistral-window", "qwen2", "qwen3-tied"])
def test_a_decoder_may_have_been_saved_without_its_head(tmp_path: Path, name: str) -> None:
    config = tiny_models.VARIANTS[name].config
    architecture = config["architectures"][0]
    folder = tiny_models.write_folder(tmp_path / "whole", config, {})
    shapes = parameter_shapes(open_config(folder)[0])
    tensors = {key: tiny_models.weight(key, shape, architecture) for key, shape in shapes.items()}
    tiny_models.write_folder(folder, config, tensors)
    bare = {key.removeprefix("model."): tensor for key, tensor in tensors.items() if key != "lm_head.weight"}
    without = {**config, "architectures": [architecture.replace("ForCausalLM", "Model")]}
    headless = tiny_models.write_folder(tmp_path / "headless", without, bare)
    for path in (folder, headless):
        byte_backend().save(str(path / "tokenizer.json"))
    prompts = [tiny_models.prompt(name, length) for length in (3, 40)]
    found = []
    for path in (folder, headless):
        with LLM(str(path), num_threads=1) as llm:
            found.append([output.outputs.data.tobytes() for output in llm.encode(prompts, use_tqdm=False)])
            if path is headless:
                with pytest.raises(InvalidRequestError, match="generates no text"):
                    llm.generate(prompts, use_tqdm=False)
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def smollm2(smollm2_gguf: Path) -> Iterator[LLM]:
    with LLM(str(smollm2_gguf), max_model_len=512, kv_cache_memory=0.05) as llm:
        yield llm


def test_a_real_model_knows_what_is_alike(smollm2: LLM, smollm2_gguf: Path) -> None:
    query = "How do I cook pasta?"
    documents = ["Boil the spaghetti in salted water for ten minutes.", "The stock market fell sharply on Monday."]
    near, far = (output.outputs.score for output in smollm2.score(query, documents, use_tqdm=False))
    assert near > far + 0.02
    prompts = [query, *documents, "word " * 120]
    alone = [output.outputs.embedding for prompt in prompts for output in smollm2.embed(prompt, use_tqdm=False)]
    with LLM(str(smollm2_gguf), max_model_len=512, kv_cache_memory=0.05, max_num_batched_tokens=512) as other:
        assert [output.outputs.embedding for output in other.embed(prompts, use_tqdm=False)] == alone
    assert abs(sum(number * number for number in alone[0]) - 1) < 1e-6 and len(alone[0]) == 576
