"""A BERT-shaped encoder from its folder to its embeddings, against numpy alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.tiny_bert import CLS, SEP, UNK, WORDS, hidden_states, write_bert, write_bert_gguf

from octavo import LLM, PoolingParams
from octavo.errors import ConfigError, ContextLengthError, InvalidRequestError, LoadError
from octavo.ops.arrays import F32

LONG = [CLS, *[4 + index % 12 for index in range(126)], SEP]
PROMPTS = [[CLS, 5, SEP], [CLS, 4, 5, 6, 7, 4, 8, 13, SEP], LONG, [CLS, SEP], [9]]


def unit(vector: F32) -> F32:
    result: F32 = vector / np.linalg.norm(vector)
    return result


def vectors(llm: LLM, prompts: list[list[int]]) -> list[F32]:
    return [output.outputs.data for output in llm.encode(prompts, use_tqdm=False)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), num_threads=2) as llm:
        yield llm


def test_pooled_hidden_states_are_those_of_the_formulas(llm: LLM) -> None:
    for prompt, vector in zip(PROMPTS, vectors(llm, PROMPTS), strict=True):
        np.testing.assert_allclose(vector, unit(hidden_states(prompt).mean(axis=0)), atol=1e-5)


def test_the_bytes_are_those_of_each_text_alone(llm: LLM, folder: Path) -> None:
    together = vectors(llm, PROMPTS * 3)
    alone = [vectors(llm, [prompt])[0] for prompt in PROMPTS]
    with LLM(str(folder), num_threads=1, enforce_eager=True) as plain:
        eager = vectors(plain, PROMPTS)
    for index, vector in enumerate(together):
        assert vector.tobytes() == alone[index % len(alone)].tobytes() == eager[index % len(alone)].tobytes()
    llm.llm_engine.check_integrity()
    assert llm.llm_engine.stats().num_used_blocks == 0 and llm.llm_engine.stats().prefix_hits == 0


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize(("pooling", "row"), [("pooling_mode_cls_token", 0), ("pooling_mode_lasttoken", -1)])
def test_the_folder_says_how_to_pool(tmp_path: Path, device: str, pooling: str, row: int) -> None:
    with LLM(str(write_bert(tmp_path, pooling, normalize=False)), device=device) as llm:
        (vector,) = vectors(llm, PROMPTS[1:2])
    np.testing.assert_allclose(vector, hidden_states(PROMPTS[1])[row], atol=2e-5)


def test_text_goes_through_wordpiece(llm: LLM) -> None:
    (output,) = llm.embed("The CATS sat running zebra.", use_tqdm=False)
    words = ["the", "cat", "##s", "sat"]
    expected = [CLS, *[WORDS.index(word) for word in words], UNK, UNK, WORDS.index("."), SEP]
    assert output.prompt_token_ids == expected
    assert llm.get_tokenizer().decode(expected[1:5]) == "the cats sat"


def test_it_generates_no_text(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="makes embeddings and generates no text"):
        llm.generate("the cat", use_tqdm=False)


def test_a_prompt_may_fill_the_context_and_no_more(llm: LLM) -> None:
    assert len(vectors(llm, [LONG])) == 1
    too_long = [*LONG, SEP]
    with pytest.raises(ContextLengthError, match="maximum context length is 128 tokens; the prompt has 129"):
        llm.encode(too_long, use_tqdm=False)
    text = "the cat sat on the mat . " * 40
    with pytest.raises(ContextLengthError, match="maximum context length is 128 tokens"):
        llm.embed(text, use_tqdm=False)
    (cut,) = llm.embed(text, truncate_prompt_tokens=-1, use_tqdm=False)
    assert len(cut.prompt_token_ids) == 128 and cut.prompt_token_ids[-1] == SEP
    (short,) = llm.embed(text, pooling_params=PoolingParams(truncate_prompt_tokens=4), use_tqdm=False)
    assert short.prompt_token_ids == [CLS, 4, 5, SEP]


def test_a_step_holds_a_whole_prompt(folder: Path, llm: LLM) -> None:
    assert llm.llm_engine.resolved_config.scheduler.max_num_batched_tokens == 128
    with pytest.raises(ConfigError, match="max-num-batched-tokens 64 is less than the context of 128 tokens"):
        LLM(str(folder), max_num_batched_tokens=64, max_num_seqs=8, chunked_prefill_size=64)
    with pytest.raises(ConfigError, match="max_num_batched_tokens is 100; an encoder"):
        llm.llm_engine.reconfigure(max_num_batched_tokens=100, max_num_seqs=8, chunked_prefill_size=64)


def test_max_seq_length_of_the_folder_is_the_context(tmp_path: Path) -> None:
    folder = write_bert(tmp_path)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 32, "do_lower_case": false}')
    with LLM(str(folder)) as llm:
        assert llm.llm_engine.max_model_len == 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "relative positions"),
        ({"hidden_act": "relu"}, "known for BERT: gelu"),
        ({"is_decoder": True}, "as an encoder only"),
        ({"architectures": ["BertForSequenceClassification"]}, "unknown BertForSequenceClassification"),
    ],
)
def test_what_is_not_there_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        LLM(str(write_bert(tmp_path, **change)))  # type: ignore[arg-type]


def test_pooling_that_octavo_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="pooling_mode_max_tokens"):
        LLM(str(write_bert(tmp_path, "pooling_mode_max_tokens")))


def test_a_gguf_file_gives_the_bytes_of_the_folder(llm: LLM, tmp_path: Path) -> None:
    text = "The cats sat, running on a MAT."
    with LLM(str(write_bert_gguf(tmp_path / "bert.gguf")), num_threads=2) as other:
        prompts: list[str | list[int]] = [*PROMPTS, text]
        ours, theirs = (one.encode(prompts, use_tqdm=False) for one in (llm, other))
        assert [output.prompt_token_ids for output in ours] == [output.prompt_token_ids for output in theirs]
        assert [output.outputs.data.tobytes() for output in ours] == [output.outputs.data.tobytes() for output in theirs]
        assert other.get_tokenizer().decode(theirs[-1].prompt_token_ids[1:4]) == "the cats"


@pytest.mark.parametrize(("pooling_type", "row"), [(None, 0), (2, 0), (3, -1)])
def test_a_gguf_file_says_how_to_pool(tmp_path: Path, pooling_type: int | None, row: int) -> None:
    with LLM(str(write_bert_gguf(tmp_path / "bert.gguf", pooling_type))) as llm:
        np.testing.assert_allclose(vectors(llm, PROMPTS[:1])[0], unit(hidden_states(PROMPTS[0])[row]), atol=1e-5)


def test_a_gguf_reranker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"pooling_type.*is 4; known: 1 \(mean\)"):
        LLM(str(write_bert_gguf(tmp_path / "bert.gguf", 4)))
