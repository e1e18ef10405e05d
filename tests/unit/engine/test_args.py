"""EngineArgs has exactly the fields of the config sections, with their defaults."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import pytest

from octavo.config.engine import EngineConfig
from octavo.engine.args import AsyncEngineArgs, EngineArgs
from octavo.errors import ConfigError


def test_fields_and_defaults_equal_those_of_the_sections() -> None:
    sections = EngineConfig()
    expected = {
        field.name: getattr(getattr(sections, section.name), field.name)
        for section in dataclasses.fields(sections)
        for field in dataclasses.fields(getattr(sections, section.name))
    }
    assert {field.name: getattr(EngineArgs(), field.name) for field in dataclasses.fields(EngineArgs)} == expected


def test_values_reach_their_section() -> None:
    config = EngineArgs(model="m", block_size=32, max_num_seqs=3, num_threads=1).create_engine_config()
    assert (config.loading.model, config.cache.block_size) == ("m", 32)
    assert (config.scheduler.max_num_seqs, config.backend.num_threads) == (3, 1)


def test_an_unknown_option_names_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="did you mean max_model_len"):
        EngineArgs(max_modellen=3)


@pytest.mark.parametrize(
    ("option", "value"), [("block_size", 4), ("device", "gpu"), ("max_num_seqs", "3"), ("enforce_eager", 1)]
)
def test_values_out_of_bounds_are_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineArgs(**{option: value}).create_engine_config()
    assert caught.value.param == option and option.replace("_", "-") in caught.value.message


def test_vllms_options_pass_warn_or_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    args = EngineArgs("m", tensor_parallel_size=1, trust_remote_code=True, dtype="half", max_model_len="2k", quantization=None)
    assert [record.getMessage() for record in caplog.records] == [
        "trust_remote_code=True has no effect: no code of a model is ever run"
    ]
    config = args.create_engine_config()
    assert (config.loading.dtype, config.loading.quantization, config.scheduler.max_model_len) == ("float16", "auto", 2000)
    with pytest.raises(ConfigError, match="tensor_parallel_size=2 is not supported"):
        EngineArgs(tensor_parallel_size=2)


def test_options_of_a_program_of_its_own() -> None:
    parser = AsyncEngineArgs.add_cli_args(argparse.ArgumentParser())
    parser.add_argument("--mine")
    parser.set_defaults(max_num_seqs=3)
    words = "--model m --max_model_len 2k -tp 1 --no-enable-prefix-caching --enforce-eager --mine x --enable-log-requests"
    args = parser.parse_args(words.split())
    made = AsyncEngineArgs.from_cli_args(args)
    assert isinstance(made, AsyncEngineArgs) and not made.disable_log_requests and not made.disable_log_stats
    assert (made.model, made.max_model_len, made.max_num_seqs) == ("m", 2000, 3)
    assert (made.enable_prefix_caching, made.enforce_eager) == (False, True)
    plain = EngineArgs.add_cli_args(argparse.ArgumentParser())
    assert EngineArgs.from_cli_args(plain.parse_args([])) == EngineArgs()
    assert "--max-num-batched-tokens" in plain.format_help() and "--worker-cls" not in plain.format_help()


@pytest.mark.parametrize("words", ["--block-size 4", "--max-num-seqs many", "--dtype int3", "--nonsense 1"])
def test_a_wrong_option_of_such_a_program_is_its_usage_error(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        EngineArgs.add_cli_args(argparse.ArgumentParser()).parse_args(words.split())
    assert caught.value.code == 2 and words.split()[0] in capsys.readouterr().err


def test_what_is_not_there_is_refused_from_the_command_line_too() -> None:
    args = EngineArgs.add_cli_args(argparse.ArgumentParser()).parse_args(["-tp", "2"])
    with pytest.raises(ConfigError, match="tensor_parallel_size=2 is not supported"):
        EngineArgs.from_cli_args(args)


def test_none_is_the_default_and_fields_may_be_set_later() -> None:
    names = [field.name for field in dataclasses.fields(EngineArgs)]
    assert EngineArgs(**dict.fromkeys(names)) == EngineArgs()
    args = EngineArgs()
    args.dtype, args.max_model_len = "half", "1K"  # type: ignore[assignment]
    config = args.create_engine_config()
    assert (config.loading.dtype, config.scheduler.max_model_len) == ("float16", 1024)
    assert dataclasses.replace(args, model="m").model == "m"


def test_settings_as_a_mapping_become_json() -> None:
    assert EngineArgs(override_generation_config={"temperature": 0.5}).override_generation_config == '{"temperature": 0.5}'


def test_what_an_engine_logs_is_for_the_asynchronous_one() -> None:
    assert EngineArgs(disable_log_stats=False, enable_log_requests=True) == EngineArgs()
    args = AsyncEngineArgs(enable_log_requests=True, disable_log_stats=True)
    assert (args.disable_log_requests, args.disable_log_stats) == (False, True)
    assert AsyncEngineArgs().disable_log_requests and not AsyncEngineArgs().disable_log_stats
    assert dataclasses.replace(args, model="m").disable_log_requests is False


@pytest.mark.parametrize("name", ["port", "api_key", "host"])
def test_options_of_the_server_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is an option of octavo serve"):
        EngineArgs(**{name: "1"})
