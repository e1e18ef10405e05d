"""Flags: fields as options, environment names and the docs table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from octavo.config.cache import CacheConfig
from octavo.config.flags import (
    TITLES,
    all_flags,
    config_options,
    docs_page,
    flags_of,
    make_engine_config,
    make_section,
    unknown_variables,
)
from octavo.config.scheduler import SchedulerConfig
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError

DOCS = Path(__file__).parents[3] / "docs" / "configuration.md"


def parse(arguments: list[str], env: dict[str, str] | None = None) -> dict[str, Any]:
    """The values that a command with all options receives."""
    seen: dict[str, Any] = {}

    @click.command(context_settings={"token_normalize_func": lambda name: name.replace("_", "-")})
    @config_options(TITLES)
    def command(**values: Any) -> None:
        seen.update(values)

    result = CliRunner(env=env or {}).invoke(command, arguments, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return seen


def test_docs_page_is_up_to_date() -> None:
    assert DOCS.read_text() == docs_page(), "run: python -m octavo.config.flags > docs/configuration.md"


def test_names_are_unique_over_all_sections() -> None:
    names = [name for flag in all_flags() for name in (flag.name, *flag.aliases)]
    assert len(set(names)) == len(names)


def test_defaults_without_flags_are_those_of_the_sections() -> None:
    values = parse([])
    assert make_section(ServerConfig, values) == ServerConfig()
    assert make_engine_config(values).cache == CacheConfig()


@pytest.mark.parametrize("flag", ["--max-num-seqs", "--max_num_seqs", "--max-num_seqs"])
def test_dash_and_underscore_are_the_same(flag: str) -> None:
    assert make_section(SchedulerConfig, parse([flag, "7"])).max_num_seqs == 7
    assert make_section(SchedulerConfig, parse([f"{flag}=8"])).max_num_seqs == 8


def test_switches_have_two_forms() -> None:
    assert parse(["--enforce-eager"])["enforce_eager"] is True
    assert parse(["--no-enable-prefix-caching"])["enable_prefix_caching"] is False
    assert parse(["--no_enable_prefix_caching"])["enable_prefix_caching"] is False


def test_alias_sets_the_field() -> None:
    assert parse(["--num-blocks", "99"])["num_gpu_blocks_override"] == 99


def test_environment_sets_what_no_flag_sets() -> None:
    env = {"OCTAVO_PORT": "9001", "OCTAVO_MAX_NUM_SEQS": "5", "OCTAVO_ENFORCE_EAGER": "1"}
    values = parse(["--max-num-seqs", "6"], env)
    assert (values["port"], values["max_num_seqs"], values["enforce_eager"]) == (9001, 6, True)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--port", "70000"], ["--port", "70000", "0 to 65535"]),
        (["--port", "-1"], ["--port", "-1", "0 to 65535"]),
        (["--port", "web"], ["--port", "'web'", "whole number", "0 to 65535"]),
        (["--port", "9" * 5000], ["--port", "0 to 65535"]),
        (["--port", "80.5"], ["--port", "whole number"]),
        (["--kv-cache-memory", "nan"], ["--kv-cache-memory", "nan", "0 to 65536"]),
        (["--kv-cache-memory", "inf"], ["--kv-cache-memory", "inf"]),
        (["--shutdown-timeout", "soon"], ["--shutdown-timeout", "a number"]),
        (["--device", "cpux"], ["--device", "cpux", "cpu, reference", "did you mean cpu?"]),
    ],
)
def test_bad_values_name_flag_value_and_limits(arguments: list[str], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(arguments)
    assert all(part in caught.value.message for part in parts), caught.value.message
    assert caught.value.exit_code == 2


def test_bad_environment_value_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="OCTAVO_PORT is 'x'"):
        parse([], {"OCTAVO_PORT": "x"})


def test_unknown_flag_suggests_the_near_one() -> None:
    with pytest.raises(click.NoSuchOption) as caught:
        parse(["--max-num-seq", "3"])
    assert "--max-num-seqs" in caught.value.format_message()


def test_unknown_variable_is_reported_with_the_near_one() -> None:
    assert unknown_variables({"OCTAVO_PROT": "1", "OCTAVO_PORT": "2", "OCTAVO_DEBUG": "1", "HOME": "x"}) == [
        "environment variable OCTAVO_PROT is not known and has no effect; did you mean OCTAVO_PORT?"
    ]


SERVICE = {
    "OCTAVO_PORT": "tcp://10.96.12.7:8000",
    "OCTAVO_SERVICE_HOST": "10.96.12.7",
    "OCTAVO_SERVICE_PORT": "8000",
    "OCTAVO_SERVICE_PORT_HTTP": "8000",
    "OCTAVO_PORT_8000_TCP": "tcp://10.96.12.7:8000",
    "OCTAVO_PORT_8000_TCP_PROTO": "tcp",
    "OCTAVO_PORT_8000_TCP_ADDR": "10.96.12.7",
    "OCTAVO_API_PORT": "udp://10.96.12.8:53",
}


@pytest.mark.parametrize("value", ["tcp://10.96.12.7:8000", "udp://10.0.0.1:53", "sctp://[fd00::1]:9"])
def test_the_address_of_a_service_is_no_port(value: str) -> None:
    assert parse([], {"OCTAVO_PORT": value})["port"] == ServerConfig().port
    assert parse(["--port", "9000"], {"OCTAVO_PORT": value})["port"] == 9000


def test_of_the_variables_of_a_service_only_the_one_with_a_flags_name_gets_a_line() -> None:
    (warning,) = unknown_variables(SERVICE)
    assert warning.startswith("environment variable OCTAVO_PORT is the address of a Kubernetes Service and has no effect")


@pytest.mark.parametrize("section", TITLES)
def test_every_field_has_help_and_a_type(section: type[Any]) -> None:
    for flag in flags_of(section):
        assert flag.help.endswith(".") and flag.kind in (bool, int, float, str)
        assert flag.check(flag.default) == flag.default
