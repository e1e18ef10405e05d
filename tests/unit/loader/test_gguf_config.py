"""ModelConfig from GGUF metadata."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from octavo.errors import LoadError
from octavo.loader.checkpoint import open_config
from octavo.text.load import load_tokenizer

WriteGguf = Callable[..., Path]


def test_the_embedded_model_is_described_as_its_authors_do(smollm2_gguf: Path) -> None:
    config, advice = open_config(smollm2_gguf)
    assert config.architecture == "LlamaForCausalLM" and config.tie_embeddings and config.dtype == "gguf"
    assert (config.num_layers, config.hidden_size, config.num_heads, config.num_kv_heads) == (30, 576, 9, 3)
    assert (config.head_dim, config.intermediate_size, config.vocab_size) == (64, 1536, 49152)
    assert config.rope.theta == 100000.0 and config.max_position == 8192 and config.query_scale == 0.125
    assert config.bos_token_id == 1 and config.eos_token_ids[0] == 2
    assert advice.values == {"temperature": 0.2, "top_p": 0.9} and "the makers of SmolLM2" in advice.source


def test_gemma3_gets_what_its_metadata_leaves_out(gemma3_gguf: Path) -> None:
    config, _ = open_config(gemma3_gguf)
    assert config.layer_kinds == (("sliding",) * 5 + ("full",)) * 3 and config.sliding_window == 512
    assert config.rope.theta == 1_000_000.0
    assert config.local_rope is not None and config.local_rope.theta == 10_000.0
    assert config.query_scale == 256**-0.5
    assert config.embedding_scale == float(np.float32(math.sqrt(640)))
    assert config.hidden_act == "gelu_pytorch_tanh" and config.tie_embeddings
    assert 106 in config.eos_token_ids, "<end_of_turn> ends a turn though eos_token_id is another id"


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("llama", "LlamaForCausalLM"),
        ("qwen2", "Qwen2ForCausalLM"),
        ("qwen3", "Qwen3ForCausalLM"),
        ("gemma3", "Gemma3ForCausalLM"),
    ],
)
def test_architectures_map_to_hugging_face_classes(write_gguf: WriteGguf, architecture: str, expected: str) -> None:
    config, _ = open_config(write_gguf(architecture))
    assert config.architecture == expected
    assert config.attention_bias == (architecture == "qwen2") and not config.attention_out_bias
    assert config.eos_token_ids == (1, 2), "the named id, then the control token <|im_end|>"


def test_an_unknown_architecture_lists_the_known_ones(write_gguf: WriteGguf) -> None:
    with pytest.raises(LoadError, match=r"tiny\.gguf: general\.architecture is 'mamba'; known: llama, qwen2, qwen3, gemma2, "):
        open_config(write_gguf("mamba"))


def test_a_llama_with_a_window_is_mistral(write_gguf: WriteGguf) -> None:
    config, _ = open_config(write_gguf(keys={"llama.attention.sliding_window": 64}))
    assert config.architecture == "MistralForCausalLM" and config.layer_kinds == ("sliding", "sliding")
    assert config.sliding_window == 64


def test_output_weight_means_embeddings_are_not_tied(write_gguf: WriteGguf) -> None:
    config, _ = open_config(write_gguf(arrays={"output.weight": np.zeros((48, 64), dtype=np.float32)}))
    assert not config.tie_embeddings


def test_rope_freqs_become_frequency_divisors(write_gguf: WriteGguf) -> None:
    divisors = np.array([1, 1, 1, 2, 4, 8, 8, 8], dtype=np.float32)
    config, _ = open_config(write_gguf(arrays={"rope_freqs.weight": divisors}))
    assert config.rope.frequency_divisors == tuple(divisors.tolist())


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
def test_bad_rope_freqs_are_refused(write_gguf: WriteGguf, bad: float) -> None:
    with pytest.raises(LoadError, match=r"rope_freqs\.weight"):
        open_config(write_gguf(arrays={"rope_freqs.weight": np.full(8, bad, dtype=np.float32)}))


def test_linear_yarn_and_longrope_scalings_are_read(write_gguf: WriteGguf) -> None:
    def scaling(kind: str, **keys: object) -> dict[str, object]:
        return {"llama.rope.scaling.type": kind, **{f"llama.rope.scaling.{key}": value for key, value in keys.items()}}

    rope = open_config(write_gguf(keys=scaling("linear", factor=4.0)))[0].rope
    assert (rope.kind, rope.factor) == ("linear", 4.0)
    rope = open_config(write_gguf(keys=scaling("yarn", factor=4.0, original_context_length=64)))[0].rope
    assert (rope.kind, rope.factor, rope.original_max_position, rope.attention_factor) == ("yarn", 4.0, 64, None)
    factors = {
        f"rope_factors_{name}.weight": np.full(8, value, dtype=np.float32) for name, value in (("short", 1), ("long", 3))
    }
    rope = open_config(write_gguf(keys=scaling("longrope", original_context_length=64), arrays=factors))[0].rope
    assert (rope.kind, rope.factor, rope.original_max_position) == ("longrope", 4.0, 64)
    assert rope.short_factors == (1.0,) * 8 and rope.long_factors == (3.0,) * 8
    with pytest.raises(LoadError, match="known: none, linear, yarn, longrope"):
        open_config(write_gguf(keys=scaling("spiral")))


def test_gemma3_scaling_leaves_sliding_layers_alone(write_gguf: WriteGguf) -> None:
    config, _ = open_config(
        write_gguf("gemma3", keys={"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0})
    )
    assert config.rope.factor == 8.0
    assert config.local_rope is not None and config.local_rope.kind == "default"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 100_000),
        ("embedding_length", "many"),
        ("attention.head_count_kv", 3),
        ("attention.key_length", 15),
        ("attention.layer_norm_rms_epsilon", 7.0),
        ("rope.freq_base", 0.0),
        ("rope.dimension_count", 8),
        ("context_length", None),
        ("expert_count", 5000),
    ],
)
def test_bad_values_are_refused_naming_file_and_key(write_gguf: WriteGguf, key: str, value: object) -> None:
    with pytest.raises(LoadError, match=r"tiny\.gguf: llama\." + key):
        open_config(write_gguf(keys={f"llama.{key}": value}))


PER_LAYER = {
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 16,
    "attention.value_length": 16,
}


@pytest.mark.parametrize("key", PER_LAYER)
def test_a_list_of_equal_numbers_is_that_number(write_gguf: WriteGguf, key: str) -> None:
    plain, _ = open_config(write_gguf())
    listed, _ = open_config(write_gguf(keys={f"llama.{key}": [PER_LAYER[key]] * 2}))
    assert listed == plain


@pytest.mark.parametrize("key", PER_LAYER)
def test_layers_that_differ_are_refused_in_words(write_gguf: WriteGguf, key: str) -> None:
    with pytest.raises(LoadError, match=rf"llama\.{key} is {PER_LAYER[key]} for layer 0 and 8 for layer 1"):
        open_config(write_gguf(keys={f"llama.{key}": [PER_LAYER[key], 8]}))


@pytest.mark.parametrize("key", PER_LAYER)
def test_a_list_of_another_length_is_refused(write_gguf: WriteGguf, key: str) -> None:
    with pytest.raises(LoadError, match=rf"llama\.{key} lists 3 numbers, expected one for each of 2 layers"):
        open_config(write_gguf(keys={f"llama.{key}": [PER_LAYER[key]] * 3}))


def test_gemma3_may_list_which_layers_slide(write_gguf: WriteGguf) -> None:
    key = "gemma3.attention.sliding_window_pattern"
    assert open_config(write_gguf("gemma3", keys={key: [False, True]}))[0].layer_kinds == ("full", "sliding")
    with pytest.raises(LoadError, match="lists 3 flags for 2 layers"):
        open_config(write_gguf("gemma3", keys={key: [True] * 3}))


@pytest.mark.parametrize("window", [2**31, 2**32 - 1])
def test_a_window_that_means_none_fits_into_31_bits(write_gguf: WriteGguf, window: int) -> None:
    assert open_config(write_gguf(keys={"llama.attention.sliding_window": window}))[0].sliding_window == 2**30


def test_yarn_gives_the_context_that_it_was_set_up_for(write_gguf: WriteGguf) -> None:
    keys: dict[str, object] = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
    assert open_config(write_gguf(keys=keys))[0].max_position == 1024
    keys["llama.rope.scaling.original_context_length"] = 128
    assert open_config(write_gguf(keys=keys))[0].max_position == 512
    keys["llama.rope.scaling.original_context_length"] = 32
    assert open_config(write_gguf(keys=keys))[0].max_position == 256


@pytest.mark.parametrize("key", ["bos", "eos", "eot", "eom", "padding", "unknown"])
@pytest.mark.parametrize("value", [-1, 2**32 - 1, 48, 2**31])
def test_a_special_id_that_no_token_has_is_none(
    write_gguf: WriteGguf, logged: pytest.LogCaptureFixture, key: str, value: int
) -> None:
    path = write_gguf(keys={f"tokenizer.ggml.{key}_token_id": value})
    config, _ = open_config(path)
    tokenizer = load_tokenizer(path)
    assert config.bos_token_id == tokenizer.bos_token_id == (None if key == "bos" else 0)
    assert (1 in config.eos_token_ids) == (1 in tokenizer.eos_token_ids) == (key != "eos")
    is_none = value in (-1, 2**32 - 1)
    assert (f"{key}_token_id holds {value}, which is no token id" in logged.text) == (not is_none)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temp", -1.0),
        ("temp", math.nan),
        ("top_p", 1.5),
        ("top_p", 0.0),
        ("min_p", math.inf),
        ("top_k", "many"),
        ("temp", "hot"),
    ],
)
def test_a_recommendation_out_of_range_is_ignored_with_a_warning(
    write_gguf: WriteGguf, logged: pytest.LogCaptureFixture, key: str, value: object
) -> None:
    assert open_config(write_gguf(keys={f"general.sampling.{key}": value}))[1].values == {}
    assert f"general.sampling.{key} is " in logged.text


def test_sampling_recommendations_become_generation_defaults(write_gguf: WriteGguf) -> None:
    _, advice = open_config(write_gguf(keys={"general.sampling.temp": 0.5, "general.sampling.top_k": 20}))
    assert advice.values == {"temperature": 0.5, "top_k": 20} and advice.source == "the file recommends"


def test_a_file_with_settings_of_its_own_keeps_them_and_no_others(write_gguf: WriteGguf) -> None:
    keys = {"general.name": "SmolLM2 1.7B Instruct", "general.sampling.temp": 0.5}
    assert open_config(write_gguf(keys=keys))[1].values == {"temperature": 0.5}
    del keys["general.sampling.temp"]
    assert open_config(write_gguf(keys=keys))[1].values == {"temperature": 0.2, "top_p": 0.9}


def test_dtype_is_the_float_type_of_all_matrices(write_gguf: WriteGguf) -> None:
    config, _ = open_config(write_gguf(quantised=gguf.GGMLQuantizationType.BF16))
    assert config.dtype == "bfloat16"
