"""vLLM's options: what passes, warns, sets a field or is refused; and the page that says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from octavo.config.vllm import VLLM_OPTIONS, fields_by_name, in_python, on_the_command_line, translate
from octavo.config.vllm_page import page
from octavo.config.vllm_table import TABLE, VllmOption
from octavo.errors import ConfigError

DOCS = Path(__file__).parents[3] / "docs" / "vllm.md"
NOT_OWN = [option for option in VLLM_OPTIONS.values() if option.answer in ("warns", "refuses")]


def test_the_page_is_up_to_date() -> None:
    assert DOCS.read_text() == page(), "run: python -m octavo.config.vllm_page > docs/vllm.md"


def test_a_hundred_options_are_known_each_once() -> None:
    assert len(VLLM_OPTIONS) >= 100 and len(VLLM_OPTIONS) == sum(map(len, TABLE.values()))


@pytest.mark.parametrize("option", VLLM_OPTIONS.values(), ids=VLLM_OPTIONS)
def test_the_table_fits_the_configuration(option: VllmOption) -> None:
    own = fields_by_name()
    if option.answer in ("same", "sets"):
        assert option.field in own or option.name == "config"
    else:
        assert option.answer in ("warns", "refuses") and option.name not in own and option.text


@pytest.mark.parametrize("option", NOT_OWN, ids=lambda option: option.name)
def test_values_that_ask_for_nothing_pass_without_a_word(option: VllmOption) -> None:
    for value in (None, "", [], {}, *option.neutral):
        translated = translate({option.name: value})
        assert (translated.values, translated.warnings) == ({}, []), value


@pytest.mark.parametrize("option", NOT_OWN, ids=lambda option: option.name)
def test_other_values_warn_or_are_refused_by_name_with_the_way_out(option: VllmOption) -> None:
    value = not option.neutral[0] if option.switch else "something else"
    if option.answer == "warns":
        (warning,) = translate({option.name: value}).warnings
        assert warning.startswith(in_python(option.name, value)) and option.text in warning
        return
    with pytest.raises(ConfigError) as caught:
        translate({option.name: value})
    assert caught.value.param == option.name and option.text in caught.value.message


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"scheduling_policy": "priority"}, {"scheduler_policy": "priority"}),
        ({"kv_cache_memory_bytes": "4G"}, {"kv_cache_memory": 4.0}),
        ({"kv_cache_memory_bytes": 2**30}, {"kv_cache_memory": 1.0}),
        ({"long_prefill_token_threshold": 64}, {"chunked_prefill_size": 64}),
        ({"long_prefill_token_threshold": 0}, {}),
        ({"enable_log_requests": True}, {"disable_log_requests": False}),
        ({"uvicorn_log_level": "critical"}, {"log_level": "error"}),
        ({"dtype": "half"}, {"dtype": "float16"}),
        ({"dtype": "float"}, {"dtype": "float32"}),
        ({"device": "auto"}, {"device": "cpu"}),
        ({"quantization": "gguf"}, {"quantization": "auto"}),
        ({"max_model_len": "2k"}, {"max_model_len": 2000}),
        ({"max_model_len": "2K"}, {"max_model_len": 2048}),
        ({"max_model_len": -1}, {}),
        ({"max_model_len": "auto"}, {}),
        ({"served_model_name": ["a", "b"]}, {"served_model_name": "a,b"}),
        ({"override_generation_config": {"top_k": 3}}, {"override_generation_config": '{"top_k": 3}'}),
        ({"num_blocks": 9}, {"num_gpu_blocks_override": 9}),
        ({"max_model_len": None, "quantization": None}, {}),
        ({"scheduling_policy": "fcfs", "scheduler_policy": "fcfs"}, {"scheduler_policy": "fcfs"}),
    ],
)
def test_other_names_and_spellings_set_octavos_fields(options: dict[str, Any], values: dict[str, Any]) -> None:
    translated = translate(options)
    assert (translated.values, translated.warnings) == (values, [])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tensor_parallel_size": 2}, "tensor_parallel_size=2 is not supported: one process computes with all CPUs"),
        ({"tensor_parallel_degree": 4}, "it is tensor_parallel_size"),
        ({"scheduling_policy": "fifo"}, "scheduling_policy is 'fifo'; it must be one of fcfs, sjf"),
        ({"scheduling_policy": "fcfs", "scheduler_policy": "sjf"}, "is given twice, as fcfs and as sjf; give one"),
        ({"kv_cache_memory_bytes": "much"}, "is not understood; it is in bytes, also as 4G"),
        ({"max_model_len": "2x"}, "or one like 2k or 2K"),
        ({"max_modellen": 3}, "unknown option 'max_modellen'; did you mean max_model_len?"),
        ({"tensor_parallel": 3}, "did you mean tensor_parallel_size?"),
        ({"model_loader_extra_config": {"a": "x" * 5000}}, "x..."),
    ],
)
def test_a_refusal_is_one_short_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        translate(options)
    assert words in caught.value.message and len(caught.value.message) < 400


def test_an_unknown_name_without_a_near_one_gets_no_hint() -> None:
    with pytest.raises(ConfigError, match=re.escape("unknown option 'frobnicate'") + "$"):
        translate({"frobnicate": 1})


def test_true_is_no_one_and_one_is_not_true() -> None:
    assert translate({"enable_chunked_prefill": True}).warnings == []
    with pytest.raises(ConfigError):
        translate({"tensor_parallel_size": True})


def test_max_paddings_is_told_that_nothing_is_padded() -> None:
    assert translate({"max_paddings": 256}).warnings[0].startswith("max_paddings=256 has no effect: nothing is ever padded")


def test_spellings() -> None:
    assert in_python("max_loras", 2) == "max_loras=2"
    assert on_the_command_line("max_loras", 2) == "--max-loras 2"
    assert on_the_command_line("enable_lora", True) == "--enable-lora"
    assert on_the_command_line("enable_lora", False) == "--no-enable-lora"
