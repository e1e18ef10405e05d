"""vLLM's options and --config on the command line, up to the configuration that a command receives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from octavo.cli.engine_options import engine_config, engine_options, model_argument
from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.config.engine import EngineConfig
from octavo.config.flags import config_options, make_section
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError


def parse(*arguments: str, own_seed: bool = False) -> tuple[EngineConfig, ServerConfig]:
    """What a command like `octavo serve` is configured with."""
    found: list[tuple[EngineConfig, ServerConfig]] = []

    def run(model_argument: str | None, **values: Any) -> None:
        found.append((engine_config(model_argument, values), make_section(ServerConfig, values)))

    function = model_argument(config_options([ServerConfig])(engine_options(run)))
    if own_seed:
        function = click.option("--seed", type=int)(function)
    command = click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS)(function)
    command.main(list(arguments), standalone_mode=False)
    return found[0]


def test_a_command_line_of_vllm_configures_octavo(capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        "./model --tensor-parallel-size 1 -pp 1 --trust-remote-code --dtype half --max-model-len 2k --max_num_seqs 7 "
        "--scheduling-policy priority --kv-cache-memory-bytes 1G --enable-chunked-prefill --disable-log-requests "
        "--compilation-config.level 3 --limit-mm-per-prompt {} --gpu-memory-utilization 0.5"
    )
    engine, server = parse(*line.split())
    assert (engine.loading.model, engine.loading.dtype) == ("./model", "float16")
    assert (engine.scheduler.max_model_len, engine.scheduler.max_num_seqs) == (2000, 7)
    assert (engine.scheduler.scheduler_policy, engine.cache.kv_cache_memory) == ("priority", 1.0)
    assert (engine.cache.gpu_memory_utilization, server.disable_log_requests) == (0.5, True)
    assert capsys.readouterr().err.splitlines() == [
        "octavo: warning: --trust-remote-code has no effect: no code of a model is ever run",
        "octavo: warning: --compilation-config 3 has no effect: the forward pass is recorded as a tape when the model loads",
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-tp 2", "--tensor-parallel-size 2 is not supported"),
        ("--tensor_parallel_size=2", "--tensor-parallel-size 2 is not supported"),
        ("--enable-lora", "--enable-lora is not supported: there are no adapters"),
        ("--speculative-model x", "it belongs into speculative_config"),
        ("--scheduling-policy fcfs --scheduler-policy sjf", "--scheduler-policy is sjf, and another option sets it to fcfs"),
        ("--scheduling-policy fifo", "--scheduling-policy is 'fifo'; it must be one of fcfs"),
    ],
)
def test_what_is_not_there_is_one_line(line: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(*line.split())
    assert words in caught.value.message and caught.value.exit_code == 2


def test_hidden_options_stay_out_of_the_help() -> None:
    @click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS)
    @engine_options
    def command(**values: Any) -> None:
        """Has options."""

    text = command.get_help(click.Context(command))
    assert "--tensor-parallel-size" not in text and "--config FILE" in text and "--gpu-memory-utilization" in text


def test_an_option_of_the_command_goes_before_one_of_the_configuration() -> None:
    assert parse("--seed", "5", own_seed=True)[0].loading.seed == 5


def test_a_config_file_stands_behind_the_command_line_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(
        "model: ./model\nport: 9000\nmax-model-len: 2k\nmax_num_seqs: 5\nenforce-eager: true\nblock_size: 32\n"
        "enable-prefix-caching: false\ntensor-parallel-size: 1\nscheduling-policy: sjf\nlimit-mm-per-prompt: {image: 2}\n"
    )
    monkeypatch.setenv("OCTAVO_MAX_NUM_SEQS", "6")
    engine, server = parse("--config", str(file), "--block-size", "64")
    assert (engine.loading.model, server.port, engine.scheduler.max_model_len) == ("./model", 9000, 2000)
    assert (engine.scheduler.max_num_seqs, engine.cache.block_size) == (6, 64)
    assert (engine.backend.enforce_eager, engine.cache.enable_prefix_caching) == (True, False)
    assert engine.scheduler.scheduler_policy == "sjf"
    assert capsys.readouterr().err.count("--limit-mm-per-prompt {'image': 2} has no effect") == 1
    assert parse("other", "--config", str(file))[0].loading.model == "other"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("port: web", "port in the --config file is 'web'; it must be a whole number, 0 to 65535"),
        ("prot: 1", "'prot' is no option of this command; did you mean port?"),
        ("config: x", "'config' is no option"),
        ("tensor-parallel-size: 2", "--tensor-parallel-size 2 is not supported"),
        ("enforce-eager: 3", "enforce-eager is 3; it must be true or false"),
        ("- a", "must hold options, one `name: value` per line"),
        ("a: [", "is not valid YAML"),
        ("a: *b", "is not valid YAML"),
        ("!!python/object/apply:os.getcwd []", "is not valid YAML"),
    ],
)
def test_a_fault_in_the_file_names_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        parse("--config", str(file))
    assert words in caught.value.message and "\n" not in caught.value.message


def test_an_empty_file_says_nothing_and_an_absent_one_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert parse("--config", str(tmp_path / "empty.yaml"))[0] == parse()[0]
    with pytest.raises(ConfigError, match="No such file"):
        parse("--config", str(tmp_path / "absent.yaml"))
    (tmp_path / "latin.yaml").write_bytes(b"model: \xff\n")
    with pytest.raises(ConfigError, match="not a UTF-8 text"):
        parse("--config", str(tmp_path / "latin.yaml"))


@pytest.mark.parametrize(
    ("line", "model", "names"),
    [
        ("./m --served-model-name a b --port 1", "./m", "a,b"),
        ("./m --served_model_name a b c", "./m", "a,b,c"),
        ("--served-model-name a b --model ./m", "./m", "a,b"),
        ("--served-model-name a ./m", "./m", "a"),
        ("./m --served-model-name a,b", "./m", "a,b"),
        ("./m --served-model-name=a --port 1", "./m", "a"),
    ],
)
def test_several_served_names(line: str, model: str, names: str) -> None:
    loading = parse(*line.split())[0].loading
    assert (loading.model, loading.served_model_name) == (model, names)


def test_a_list_in_the_file_is_joined(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("served-model-name: [a, b]\nallowed-origins: ['http://x', 'http://y']\n")
    engine, server = parse("--config", str(tmp_path / "c.yaml"))
    assert (engine.loading.served_model_name, server.allowed_origins) == ("a,b", "http://x,http://y")
