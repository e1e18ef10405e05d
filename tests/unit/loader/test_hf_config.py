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
    with pytest.raises(LoadError, match=r"config\.json: architectures names the unknown BertModel; known: LlamaForCausalLM"):
        read(tmp_path, base_config | {"architectures": ["BertModel"]})


def test_a_quantised_checkpoint_is_refused_naming_the_method(tmp_path: Path, base_config: Values) -> None:
    with pytest.raises(LoadError, match="unsupported method 'awq'"):
        read(tmp_path, base_config | {"quantization_config": {"quant_method": "awq"}})


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
        ("torch_dtype", "int3"),
        ("eos_token_id", 48),
        ("eos_token_id", [1, -1]),
        ("eos_token_id", [0] * 65),
        ("bos_token_id", "a"),
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


@pytest.mark.parametrize(("key", "value"), [("temperature", -1), ("top_p", 3), ("top_k", 1.5), ("eos_token_id", 4800)])
def test_bad_generation_values_are_refused(tmp_path: Path, base_config: Values, key: str, value: object) -> None:
    with pytest.raises(LoadError, match=rf"generation_config\.json: {key} "):
        read(tmp_path, base_config, {key: value})


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"', "[" * 20_000, '{"a": 1, "a": 2}', "\udcff"])
def test_a_config_that_is_no_json_object_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(LoadError, match=r"config\.json: "):
        read_hf_config(tmp_path)


def test_a_folder_without_config_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"no config\.json; expected a Hugging Face model folder or a \.gguf file"):
        read_hf_config(tmp_path)
