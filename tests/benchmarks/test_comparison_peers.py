"""Command lines of the servers, settings, the figures of a load, OpenVINO's answer."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from compare import make_parser
from comparison.facts import cpu_name, short
from comparison.load import LoadShape, serve_figures
from comparison.openvino import parse
from comparison.processes import PeerError
from comparison.servers import Capacity, llama_command, octavo_command, server_peers
from comparison.settings import Settings, add_options, pairs, read_settings, typed

from octavo.errors import ConfigError


def settings(folder: Path, *arguments: str) -> Settings:
    """As the command line gives them, with an empty file as the model."""
    model = folder / "model.gguf"
    model.touch()
    parser = argparse.ArgumentParser()
    add_options(parser)
    return read_settings(parser.parse_args(["--model", str(model), "--threads", "3", *arguments]))


def test_octavo_is_started_with_its_own_flags_and_those_asked_for(tmp_path: Path) -> None:
    chosen = settings(tmp_path, "--octavo-arg", "kv-cache-dtype=float16", "--octavo-arg", "enforce_eager=true")
    command = octavo_command(chosen, 8123, Capacity(16, 512))
    text = " ".join(command)
    for part in (
        "--port 8123",
        "--num-threads 3",
        "--max-num-seqs 16",
        "--no-enable-prefix-caching",
        "--kv-cache-dtype float16",
    ):
        assert part in text
    assert command[-1] == "--enforce-eager"


def test_llama_server_gets_a_slot_per_request_and_the_context_of_all(tmp_path: Path) -> None:
    server = tmp_path / "llama-server"
    server.touch()
    chosen = settings(tmp_path, "--llama-server", str(server), "--llama-arg=--flash-attn", "--llama-arg=on")
    text = " ".join(llama_command(chosen, 8123, Capacity(16, 512)))
    assert "-np 16 -c 8192 --flash-attn on" in text
    assert "-t 3" in text
    peer = next(peer for peer in server_peers(chosen) if peer.name == "llama-server")
    assert peer.extra_body == {"cache_prompt": False}


def test_servers_of_others_are_named_by_url(tmp_path: Path) -> None:
    chosen = settings(tmp_path, "--url", "vllm=http://127.0.0.1:9000")
    assert [(peer.name, peer.url) for peer in server_peers(chosen)] == [("octavo", ""), ("vllm", "http://127.0.0.1:9000")]


def test_the_llama_model_is_octavos_when_that_is_a_gguf(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    assert chosen.llama_model == chosen.model
    assert chosen.stored()["model"] == "model.gguf"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--llama-bench", "/nowhere/llama-bench"), "--llama-bench /nowhere/llama-bench: no such file"),
        (("--rounds", "0"), "--rounds 0"),
        (("--url", "http://x"), "NAME=VALUE"),
        (("--url", "a=http://x", "--url", "a=http://y"), "each name once"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(tmp_path, *arguments)


def test_option_values_are_numbers_and_truths_by_json_else_text() -> None:
    assert [typed(text) for text in ("true", "4", "0.5", "float16", "null", "[1]")] == [True, 4, 0.5, "float16", "null", "[1]"]
    assert pairs("--octavo-arg", ["max-num-seqs=4"]) == {"max_num_seqs": "4"}


@pytest.mark.parametrize("mode", ["prefill-decode", "long", "serve", "sweep", "batch", "startup"])
def test_every_mode_takes_the_common_options(mode: str) -> None:
    values = make_parser().parse_args([mode, "--rounds", "5", "--json", "x.json"])
    assert (values.mode, values.rounds) == (mode, 5)


def test_commands_are_stored_without_the_folders_of_this_machine() -> None:
    assert [short(text) for text in ("/a/b/llama-bench", "--json=/tmp/x.json", "v=http://h/v1", "--rounds")] == [
        "llama-bench",
        "--json=x.json",
        "v=http://h/v1",
        "--rounds",
    ]


def test_cpu_name_is_read_where_linux_tells_it(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor : 0\nmodel name\t: A CPU @ 2 GHz\n")
    assert cpu_name(path) == "A CPU @ 2 GHz"
    assert cpu_name(tmp_path / "missing")


def test_serve_figures_leave_out_gaps_that_nobody_saw() -> None:
    summary = {"total_token_throughput": 10.0, "output_throughput": 2.0, "median_ttft_ms": 5.0, "p99_ttft_ms": 9.0}
    assert "itl_p50_ms" not in serve_figures(summary, [])
    figures = serve_figures(summary, [0.01, 0.01, 0.03])
    assert figures["itl_p50_ms"] == pytest.approx(10.0)
    assert figures["itl_p99_over_p50"] == pytest.approx(2.96)


def test_a_slot_holds_the_longest_request_with_some_room() -> None:
    shape = LoadShape(230, 64, 0.5)
    assert shape.longest >= 1.5 * (230 + 64)
    assert shape.longest % 64 == 0


def test_openvino_answers_in_the_last_line() -> None:
    assert parse('a warning\n{"seconds": 2, "version": "2026.4"}\n') == {"seconds": 2.0}
    for output in ("", "no json", "[1]"):
        with pytest.raises(PeerError, match="not JSON"):
            parse(output)
