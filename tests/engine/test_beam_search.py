"""Beam search against another one: plain numpy, the whole model computed anew for every beam, no engine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.fakes import EOS, MODEL_CONFIG, VOCAB_SIZE, ids, write_model
from tests.tiny_models import weight, write_folder

from octavo import LLM, BeamSearchParams, InvalidRequestError, SamplingParams
from octavo.engine.frontend.beam_search import MAX_BEAM_WIDTH, BeamSearch
from octavo.engine.frontend.logprobs import PositionLogprobs

F64 = NDArray[np.float64]
Found = tuple[tuple[int, ...], float]
HIDDEN, HEADS, INNER, LAYERS = 32, 2, 64, 2
HEAD = HIDDEN // HEADS
PROMPTS = ["Once upon", "a", "Grüße, 안녕 👋"]
ENDS = (EOS, 18)
"""The second is an ordinary byte that this model likes, so that beams end on their way."""


def tensors() -> dict[str, NDArray[np.float32]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB_SIZE, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        attention = {"q_proj": (HIDDEN, HIDDEN), "k_proj": (HEAD, HIDDEN), "v_proj": (HEAD, HIDDEN), "o_proj": (HIDDEN, HIDDEN)}
        shapes |= {f"{name}self_attn.{key}.weight": shape for key, shape in attention.items()}
        shapes |= {f"{name}mlp.{key}.weight": (INNER, HIDDEN) for key in ("gate_proj", "up_proj")}
        shapes |= {f"{name}mlp.down_proj.weight": (HIDDEN, INNER)}
        shapes |= {f"{name}{key}.weight": (HIDDEN,) for key in ("input_layernorm", "post_attention_layernorm")}
    return {name: weight(name, shape, "LlamaForCausalLM") for name, shape in shapes.items()}


WEIGHTS = {name: tensor.astype(np.float64) for name, tensor in tensors().items()}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = write_model(tmp_path_factory.mktemp("model"))
    write_folder(folder, {**MODEL_CONFIG, "eos_token_id": list(ENDS)}, tensors())
    with LLM(str(folder), dtype="float32", num_gpu_blocks_override=96, block_size=8, max_num_seqs=16) as llm:
        yield llm
        llm.llm_engine.check_integrity()


def norm(x: F64, name: str) -> F64:
    scaled: F64 = x / np.sqrt((x * x).mean(-1, keepdims=True) + MODEL_CONFIG["rms_norm_eps"]) * WEIGHTS[name]
    return scaled


def rotated(x: F64) -> F64:
    """x [tokens, heads, HEAD], the halves of a head turned by position."""
    angles = np.arange(len(x))[:, None] / MODEL_CONFIG["rope_theta"] ** (np.arange(0, HEAD, 2) / HEAD)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    low, high = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


@cache
def next_logprobs(token_ids: tuple[int, ...]) -> F64:
    """Log-softmax of the logits behind the tokens, [VOCAB_SIZE]."""
    x = WEIGHTS["model.embed_tokens.weight"][list(token_ids)]
    for layer in range(LAYERS):
        own = {key.removeprefix(f"model.layers.{layer}."): value for key, value in WEIGHTS.items() if f".{layer}." in key}
        h = norm(x, f"model.layers.{layer}.input_layernorm.weight")
        q, k, v = (h @ own[f"self_attn.{key}_proj.weight"].T for key in "qkv")
        q, k = rotated(q.reshape(len(x), HEADS, HEAD)), rotated(k.reshape(len(x), 1, HEAD))[:, 0]
        scores = np.einsum("qhd,kd->hqk", q, k) / HEAD**0.5 + np.triu(np.full((len(x), len(x)), -np.inf), 1)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,kd->qhd", shares, v).reshape(len(x), HIDDEN) @ own["self_attn.o_proj.weight"].T
        h = norm(x, f"model.layers.{layer}.post_attention_layernorm.weight")
        gate = h @ own["mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ own["mlp.up_proj.weight"].T)) @ own["mlp.down_proj.weight"].T
    logits = norm(x, "model.norm.weight")[-1] @ WEIGHTS["model.embed_tokens.weight"].T
    found: F64 = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    return found


def searched(
    prompt: list[int], width: int, max_tokens: int, ends: tuple[int, ...], penalty: float
) -> list[tuple[list[int], float]]:
    """(tokens, logprob) of the best continuations, over whole rows of logprobs."""
    beams: list[Found] = [((), 0.0)]
    done: list[Found] = []
    for _ in range(max_tokens):
        grown: list[Found] = []
        for tokens, total in beams:
            row = next_logprobs((*prompt, *tokens))
            for token in np.argsort(-row, kind="stable")[: 2 * width]:
                entry = ((*tokens, int(token)), total + float(row[token]))
                (done if token in ends else grown).append(entry)
        beams = sorted(grown, key=lambda entry: -entry[1])[:width]

    def score(entry: Found) -> float:
        tokens = [token for token in entry[0] if token not in ends]
        return float(entry[1] / (len(prompt) + len(tokens)) ** penalty)

    return [(list(tokens), total) for tokens, total in sorted([*done, *beams], key=score, reverse=True)[:width]]


@pytest.mark.parametrize(
    ("width", "max_tokens", "options"),
    [(1, 5, {}), (3, 8, {}), (4, 6, {"length_penalty": 0.0}), (3, 6, {"length_penalty": 2.5}), (2, 6, {"ignore_eos": True})],
)
def test_the_best_continuations_are_those_of_a_plain_search(
    llm: LLM, width: int, max_tokens: int, options: dict[str, Any]
) -> None:
    outputs = llm.beam_search(PROMPTS, BeamSearchParams(width, max_tokens, **options))
    ends = () if options.get("ignore_eos") else ENDS
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        expected = searched(ids(prompt), width, max_tokens, ends, options.get("length_penalty", 1.0))
        assert [sequence.tokens for sequence in output.sequences] == [ids(prompt) + tokens for tokens, _ in expected]
        assert [sequence.cum_logprob for sequence in output.sequences] == pytest.approx(
            [total for _, total in expected], abs=1e-3
        )
        for sequence in output.sequences:
            tokens = sequence.tokens[len(ids(prompt)) :]
            assert [entry.token_id for entry in sequence.logprobs] == tokens
            assert sum(entry.logprob for entry in sequence.logprobs) == pytest.approx(sequence.cum_logprob)
            assert all(entry[token].rank == entry.rank for entry, token in zip(sequence.logprobs, tokens, strict=True))
            assert sequence.finish_reason == ("stop" if tokens[-1] in ends else "length")
            assert sequence.text == llm.get_tokenizer().decode(sequence.tokens)


def test_some_of_those_beams_end_on_their_way() -> None:
    best = [tokens for prompt in PROMPTS for tokens, _ in searched(ids(prompt), 4, 6, ENDS, 0.0)]
    assert any(tokens[-1] in ENDS for tokens in best) and any(len(tokens) == 6 for tokens in best)


def test_it_is_the_same_alone_and_together_and_reads_the_prefix_cache(llm: LLM) -> None:
    params = BeamSearchParams(beam_width=3, max_tokens=12)
    together = llm.beam_search(PROMPTS, params)
    before = llm.llm_engine.stats().prefix_hits
    alone = [llm.beam_search(prompt, params)[0] for prompt in PROMPTS]
    assert [[(s.tokens, s.cum_logprob) for s in output.sequences] for output in alone] == [
        [(s.tokens, s.cum_logprob) for s in output.sequences] for output in together
    ]
    assert llm.llm_engine.stats().prefix_hits > before


def test_one_beam_is_greedy_and_the_context_ends_it(llm: LLM) -> None:
    prompt = ids("x" * 250)
    (output,) = llm.beam_search([{"prompt_token_ids": prompt}], BeamSearchParams(1, 100, ignore_eos=True))
    greedy = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=100, ignore_eos=True), use_tqdm=False)[0]
    assert output.sequences[0].tokens == prompt + greedy.outputs[0].token_ids and len(output.sequences[0].tokens) == 256
    assert output.sequences[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("beam_width", value) for value in (0, -1, MAX_BEAM_WIDTH + 1, 1.5, True, "2", None)),
        *(("max_tokens", value) for value in (0, -5, 2.0, None)),
        *(("length_penalty", value) for value in (float("nan"), 11, -11, "1")),
        *(("temperature", value) for value in (-1, float("inf"), "hot")),
    ],
)
def test_wrong_settings_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        BeamSearchParams(**{"beam_width": 2, "max_tokens": 3, field: value})
    assert caught.value.param == field and str(value)[:3] in caught.value.message


def test_refused_prompts_leave_nothing_behind(llm: LLM) -> None:
    params = BeamSearchParams(2, 2)
    for prompt in ("", [VOCAB_SIZE], "x" * 300):
        with pytest.raises(InvalidRequestError, match="prompt 1: "):
            llm.beam_search(["fine", prompt], params)
    assert not llm.llm_engine.has_unfinished_requests() and llm.beam_search([], params) == []


def entry(*pairs: tuple[int, float]) -> PositionLogprobs:
    token_ids, logprobs = [token for token, _ in pairs], [logprob for _, logprob in pairs]
    return PositionLogprobs(token_ids[0], logprobs[0], 1, token_ids, logprobs, str)


def test_ties_go_to_the_better_beam_then_to_the_likelier_token() -> None:
    search = BeamSearch([1], BeamSearchParams(2, 2), [], 100)
    search.advance([entry((5, -1.0), (4, -1.0), (3, -1.0), (2, -2.0))])
    assert search.prompts == [[1, 5], [1, 4]]
    search.advance([entry((7, -1.0), (6, -1.0)), entry((9, -1.0), (8, -1.0))])
    assert [beam.token_ids for beam in search.best()] == [[5, 7], [5, 6]] and search.prompts == []


def test_a_small_vocabulary_and_a_timeout_end_the_search() -> None:
    search = BeamSearch([1], BeamSearchParams(3, 5), [0], 100)
    search.advance([entry((0, -0.1), (2, -3.0), (3, float("-inf")))])
    assert search.prompts == [[1, 2]]
    search.advance([None])
    assert search.prompts == [] and [beam.token_ids for beam in search.best()] == [[0], [2]]
    only_ends = BeamSearch([1], BeamSearchParams(2, 5), [0], 100)
    only_ends.advance([entry((0, -0.1), (3, float("-inf")))])
    assert only_ends.prompts == [] and len(only_ends.best()) == 1
