"""--speculative-config: vLLM's keys, what passes, and one line for each thing that is not there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from octavo.config.speculative import SpeculationConfig, speculation_of
from octavo.engine.args import EngineArgs
from octavo.errors import ConfigError


def read(**keys: Any) -> SpeculationConfig:
    return speculation_of(msgspec.json.encode(keys).decode())


@pytest.mark.parametrize("text", [None, "", "  "])
def test_without_it_only_requests_that_ask_have_guesses(text: str | None) -> None:
    assert speculation_of(text) == SpeculationConfig()
    assert SpeculationConfig().num_speculative_tokens == 0


@pytest.mark.parametrize(
    ("keys", "number", "low", "high"),
    [
        ({}, 8, 3, 5),
        ({"num_speculative_tokens": 4}, 4, 3, 5),
        ({"num_speculative_tokens": 0}, 0, 3, 5),
        ({"prompt_lookup_max": 4}, 8, 3, 4),
        ({"prompt_lookup_max": 2}, 8, 2, 2),
        ({"prompt_lookup_min": 2}, 8, 2, 5),
        ({"prompt_lookup_min": 7}, 8, 7, 7),
        ({"prompt_lookup_min": 2, "prompt_lookup_max": 9}, 8, 2, 9),
        ({"num_speculative_tokens": None, "prompt_lookup_min": None, "model": None}, 8, 3, 5),
    ],
)
def test_numbers_and_their_defaults(keys: dict[str, Any], number: int, low: int, high: int) -> None:
    config = read(method="ngram", **keys)
    assert (config.num_speculative_tokens, config.prompt_lookup_min, config.prompt_lookup_max) == (number, low, high)


@pytest.mark.parametrize(
    "keys",
    [
        {"method": "ngram", "model": "ngram"},
        {"model": "[ngram]"},
        {"method": "ngram", "draft_tensor_parallel_size": 1},
        {"method": "ngram", "disable_logprobs": False, "enforce_eager": True, "quantization": None},
        {"method": "ngram", "disable_padded_drafter_batch": True, "acceptance_method": "rejection_sampler"},
    ],
)
def test_what_asks_for_nothing_passes(keys: dict[str, Any]) -> None:
    assert read(**keys) == read(method="ngram")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"method": "eagle", "model": "x"}', "method 'eagle' is not supported"),
        ('{"method": "medusa"}', "method 'medusa' is not supported"),
        ('{"method": "mtp"}', "method 'mtp' is not supported"),
        ('{"method": 3}', "method '3' is not supported"),
        ('{"model": "/models/small"}', "a draft model ('/models/small') is not supported"),
        ('{"method": "ngram", "model": "/models/small"}', "reads no model"),
        ("{}", "names no method"),
        ("[]", "must be a JSON object"),
        ("ngram", "must be a JSON object"),
        ('{"method": "ngram", "num_speculative_tokens": 33}', "num_speculative_tokens is '33'; it must be a whole number"),
        ('{"method": "ngram", "num_speculative_tokens": true}', "num_speculative_tokens is 'True'"),
        ('{"method": "ngram", "prompt_lookup_min": 0}', "prompt_lookup_min is '0'"),
        ('{"method": "ngram", "prompt_lookup_max": "5"}', "prompt_lookup_max is '5'"),
        ('{"method": "ngram", "prompt_lookup_min": 6, "prompt_lookup_max": 5}', "more than prompt_lookup_max, 5"),
        ('{"method": "ngram", "disable_logprobs": true}', "disable_logprobs is 'True'"),
        ('{"method": "ngram", "draft_tensor_parallel_size": 2}', "draft_tensor_parallel_size is '2'"),
        ('{"method": "ngram", "lookup": 3}', "has the key 'lookup'; known: method, num_speculative_tokens"),
    ],
)
def test_what_is_not_there_is_one_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineArgs(speculative_config=text).create_engine_config()
    assert words in caught.value.message and "\n" not in caught.value.message
    assert caught.value.param == "speculative_config" and caught.value.exit_code == 2


def test_python_gives_a_mapping() -> None:
    config = EngineArgs(speculative_config={"method": "ngram", "num_speculative_tokens": 5}).create_engine_config()
    assert speculation_of(config.scheduler.speculative_config).num_speculative_tokens == 5
