"""ModelConfig from config.json and generation_config.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.config.model import ModelConfig
from octavo.errors import LoadError
from octavo.loader.hf_config import read_hf_config
from octavo.loader.sampling_advice import SamplingAdvice

Values = dict[str, object]


def read(folder: Path, values: Values, generation: Values | None = None) -> tuple[ModelConfig, SamplingAdvice]:
    (folder / "config.json").write_text(json.dumps(values))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return read_hf_config(folder)


def test_llama_with_all_its_switches(tmp_path: Path, base_config: Values) -> None:
    config, _ = read(tmp_path, base_config | {"attention_bias": True, "mlp_bias": True, "torch_dtype": "bfloat16"})
    assert config.architecture == "LlamaForCausalLM" and config.dtype == "bfloat16"
    assert config.attention_bias and config.attention_out_bias and config.mlp_bias and not config.tie_embeddings
    assert config.layer_kinds == ("full", "full") and config.sliding_window is None
    assert config.query_scale == 0.25 and config.norm_eps == 1e-5
    assert config.bos_token_id == 0 and config.eos_token_ids == (1,)


def test_head_dim_and_kv_heads_have_transformers_defaults(tmp_path: Path, base_config: Values) -> None:
    del base_config["head_dim"], base_config["num_key_value_heads"]
    config, _ = read(tmp_path, base_config)
    assert config.head_dim == 16 and config.num_kv_heads == 4


@pytest.mark.parametrize(
    ("window", "kinds"), [({}, "sliding"), ({"sliding_window": 32}, "sliding"), ({"sliding_window": None}, "full")]
)
def test_mistral_slides_unless_its_window_is_null(tmp_path: Path, base_config: Values, window: Values, kinds: str) -> None:
    config, _ = read(tmp_path, base_config | {"architectures": ["MistralForCausalLM"]} | window)
    assert config.layer_kinds == (kinds, kinds)
    assert config.sliding_window == (window.get("sliding_window", 4096))


def test_qwen2_has_qkv_biases_and_slides_from_max_window_layers(tmp_path: Path, base_config: Values) -> None:
    qwen2 = base_config | {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 32, "max_window_layers": 1}
    config, _ = read(tmp_path, qwen2)
    assert config.attention_bias and not config.attention_out_bias and config.sliding_window is None
    assert config.layer_kinds == ("full", "full")
    config, _ = read(tmp_path, qwen2 | {"use_sliding_window": True})
    assert config.layer_kinds == ("full", "sliding") and config.sliding_window == 32


def test_qwen3_reads_its_bias_switch_and_head_dim(tmp_path: Path, base_config: Values) -> None:
    del base_config["head_dim"]
    config, _ = read(tmp_path, base_config | {"architectures": ["Qwen3ForCausalLM"], "attention_bias": True})
    assert config.head_dim == 128 and config.attention_bias and config.attention_out_bias


GEMMA3: Values = {
    "architectures": ["Gemma3ForCausalLM"],
    "num_hidden_layers": 8,
    "sliding_window": 32,
    "query_pre_attn_scalar": 64,
    "final_logit_softcapping": 30.0,
    "hidden_activation": "gelu_pytorch_tanh",
}


def test_gemma3_old_form(tmp_path: Path, base_config: Values) -> None:
    del base_config["tie_word_embeddings"]
    old = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    config, _ = read(tmp_path, base_config | GEMMA3 | old)
    assert config.layer_kinds == ("sliding",) * 5 + ("full",) + ("sliding",) * 2
    assert (config.rope.kind, config.rope.theta, config.rope.factor) == ("linear", 1e6, 8.0)
    assert config.local_rope is not None and (config.local_rope.kind, config.local_rope.theta) == ("default", 1e4)
    assert config.query_scale == 0.125 and config.embedding_scale == 8.0 and config.tie_embeddings
    assert config.final_softcap == 30.0 and config.attn_softcap is None and config.hidden_act == "gelu_pytorch_tanh"


def test_gemma3_new_form_inside_a_larger_model(tmp_path: Path, base_config: Values) -> None:
    text = base_config | GEMMA3
    text["layer_types"] = ["full_attention", "sliding_attention"] * 4
    text["rope_parameters"] = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
    }
    outer: Values = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {key: value for key, value in text.items() if key not in ("architectures", "eos_token_id")},
        "eos_token_id": [1, 7],
    }
    config, _ = read(tmp_path, outer)
    assert config.architecture == "Gemma3ForCausalLM" and config.eos_token_ids == (1, 7)
    assert config.layer_kinds == ("full", "sliding") * 4
    assert config.rope.factor == 8.0 and config.local_rope is not None and config.local_rope.theta == 2e4


def test_generation_config_wins_for_eos_and_gives_defaults(tmp_path: Path, base_config: Values) -> None:
    generation: Values = {
        "eos_token_id": [2, 3],
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 20,
        "repetition_penalty": 1.1,
        "max_new_tokens": 99,
        "do_sample": True,
        "min_p": None,
    }
    config, advice = read(tmp_path, base_config, generation)
    assert config.eos_token_ids == (2, 3)
    assert advice.source == "generation_config.json recommends"
    assert advice.values == {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1, "max_tokens": 99}


def test_an_unknown_architecture_lists_the_known_ones(tmp_path: Path, base_config: Values) -> None:
    with pytest.raises(LoadError, match=r"config\.json: architectures names the unknown RobertaModel; known: LlamaForCausalLM"):
        read(tmp_path, base_config | {"architectures": ["RobertaModel"]})


def test_a_quantised_checkpoint_is_refused_naming_the_method(tmp_path: Path, base_config: Values) -> None:
    with pytest.raises(LoadError, match="quant_method is 'hqq', which is not supported; known: awq, gptq"):
        read(tmp_path, base_config | {"quantization_config": {"quant_method": "hqq"}})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 0),
        ("hidden_size", -64),
        ("hidden_size", "64"),
        ("hidden_size", 64.5),
        ("hidden_size", True),
        ("hidden_size", None),
        ("hidden_size", 1e300),
        ("num_hidden_layers", 10**9),
        ("num_key_value_heads", 3),
        ("head_dim", 15),
        ("vocab_size", []),
        ("rms_norm_eps", 2.0),
        ("rms_norm_eps", float("nan")),
        ("max_position_embeddings", 0),
        ("hidden_act", "relu6"),
        ("hidden_act", 5),
        ("tie_word_embeddings", "yes"),
        ("layer_types", ["full_attention"]),
        ("layer_types", ["full_attention", "chunked_attention"]),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("architectures", "LlamaForCausalLM"),
        ("architectures", []),
        ("rope_theta", 0),
        ("rope_scaling", "linear"),
        ("quantization_config", 4),
    ],
)
def test_bad_values_are_refused_naming_file_and_key(tmp_path: Path, base_config: Values, key: str, value: object) -> None:
    with pytest.raises(LoadError, match=rf"config\.json: {key} "):
        read(tmp_path, base_config | {key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("temperature", value) for value in (-1, float("nan"), float("inf"), "0.6", True, [0.6], 10**400)),
        *(("top_p", value) for value in (3, 0, -0.5)),
        *(("top_k", value) for value in (1.5, -5, 2**40, "20")),
        *(("max_new_tokens", value) for value in (0, -1, 2**40, 1e300)),
        *(("repetition_penalty", value) for value in (0, -1)),
        ("min_p", 2),
    ],
)
def test_a_recommendation_out_of_range_is_ignored_with_a_warning(
    tmp_path: Path, base_config: Values, logged: pytest.LogCaptureFixture, key: str, value: object
) -> None:
    _, defaults = read(tmp_path, base_config, {key: value})
    assert defaults.values == {}
    assert f"generation_config.json: {key} is " in logged.text and len(logged.text) < 600


@pytest.mark.parametrize(
    ("key", "value", "warned"),
    [
        ("eos_token_id", 4800, True),
        ("eos_token_id", [1, 48], True),
        ("eos_token_id", [1, "x", None], True),
        ("eos_token_id", [1, -1], False),
        ("eos_token_id", -1, False),
        ("bos_token_id", 4294967295, False),
        ("bos_token_id", "a", True),
        ("bos_token_id", True, True),
    ],
)
def test_an_id_that_no_token_can_have_is_ignored(
    tmp_path: Path, base_config: Values, logged: pytest.LogCaptureFixture, key: str, value: object, warned: bool
) -> None:
    del base_config["bos_token_id"], base_config["eos_token_id"]
    config, _ = read(tmp_path, base_config | {key: value})
    assert config.bos_token_id is None
    assert config.eos_token_ids == ((1,) if isinstance(value, list) else ())
    assert (f"config.json: {key} holds " in logged.text) == warned


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"', "[" * 20_000, '{"temperature": ' + "9" * 5000 + "}"])
def test_a_damaged_generation_config_recommends_nothing(
    tmp_path: Path, base_config: Values, logged: pytest.LogCaptureFixture, content: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(base_config))
    (tmp_path / "generation_config.json").write_text(content)
    assert read_hf_config(tmp_path)[1].values == {}
    assert "the file is ignored" in logged.text


@pytest.mark.parametrize("value", ["int3", "float8_e4m3fn", 5, None])
def test_a_dtype_that_the_weights_decide_on_is_not_needed(tmp_path: Path, base_config: Values, value: object) -> None:
    assert read(tmp_path, base_config | {"torch_dtype": value})[0].dtype == "float32"


@pytest.mark.parametrize("window", [2**31 - 1, 2**31, 2**32 - 1, 2**40])
def test_a_window_that_means_none_fits_into_31_bits(tmp_path: Path, base_config: Values, window: int) -> None:
    config, _ = read(tmp_path, base_config | {"architectures": ["MistralForCausalLM"], "sliding_window": window})
    assert config.sliding_window == 2**30


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}, 1024),
        ({"rope_type": "yarn", "factor": 2.5, "original_max_position_embeddings": 128}, 320),
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}, 256),
        ({"rope_type": "yarn", "factor": 4.0}, 1024),
        ({"rope_type": "linear", "factor": 4.0}, 1024),
        ({"rope_type": "dynamic", "factor": 4.0}, 256),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}, 256),
        ({"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "factor": 4.0}, 256),
        ({"rope_type": "yarn", "factor": 1e6, "original_max_position_embeddings": 2**20}, 2**30),
    ],
)
def test_the_context_is_what_the_scaling_gives(tmp_path: Path, base_config: Values, scaling: Values, context: int) -> None:
    assert read(tmp_path, base_config | {"rope_scaling": scaling})[0].max_position == context


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"', "[" * 20_000, '{"a": 1, "a": 2}', "\udcff"])
def test_a_config_that_is_no_json_object_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(LoadError, match=r"config\.json: "):
        read_hf_config(tmp_path)


def test_a_folder_without_config_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"no config\.json; expected a Hugging Face model folder or a \.gguf file"):
        read_hf_config(tmp_path)
