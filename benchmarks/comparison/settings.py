"""Settings: what all modes share, read from the command line once."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path

from octavo.config.machine import read_machine
from octavo.errors import ConfigError
from octavo.loader.hub import DEFAULT_MODEL, default_cache_dir, resolve_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """
    model, llama_model   octavo's model; the GGUF file of the peers that read GGUF (None where there is none)
    octavo_args          engine options of octavo by field name, e.g. {"kv_cache_dtype": "float16"}
    llama_args           further flags of llama-server and llama-bench
    urls                 name -> base URL of servers that somebody else started
    ready_timeout_s, run_timeout_s   bounds on a server's start and on one run of a tool
    """

    model: Path
    llama_model: Path | None
    threads: int
    rounds: int
    octavo_args: dict[str, object]
    llama_args: tuple[str, ...]
    llama_server: Path | None
    llama_bench: Path | None
    openvino_python: Path | None
    urls: dict[str, str]
    ready_timeout_s: float
    run_timeout_s: float

    def stored(self) -> dict[str, object]:
        """What belongs beside the figures; file names without their folders."""
        return {
            "model": self.model.name,
            "peer_model": None if self.llama_model is None else self.llama_model.name,
            "threads": self.threads,
            "rounds": self.rounds,
            "octavo_args": self.octavo_args,
            "llama_args": list(self.llama_args),
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options behind Settings."""
    machine = read_machine()
    parser.add_argument(
        "--model", default=DEFAULT_MODEL, help="octavo's model: path or embedded name (default: the embedded one)"
    )
    parser.add_argument("--llama-model", type=Path, metavar="GGUF", help="GGUF of the peers (default: --model if it is one)")
    parser.add_argument(
        "--threads", type=int, default=machine.num_cpus, help="compute threads of everybody (default: the CPUs)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often everybody takes a turn (default 3)")
    parser.add_argument("--octavo-arg", action="append", default=[], metavar="KEY=VALUE", help="an engine option of octavo")
    parser.add_argument(
        "--llama-arg", action="append", default=[], metavar="FLAG", help="--llama-arg=--flag, for llama.cpp's tools"
    )
    parser.add_argument("--llama-server", type=Path, metavar="PATH", help="llama.cpp's server")
    parser.add_argument("--llama-bench", type=Path, metavar="PATH", help="llama.cpp's llama-bench")
    parser.add_argument("--openvino-python", type=Path, metavar="PATH", help="a Python that has openvino-genai")
    parser.add_argument("--url", action="append", default=[], metavar="NAME=URL", help="an OpenAI-compatible server that runs")
    parser.add_argument("--ready-timeout", type=float, default=120.0, metavar="S", help="bound on a server's start")
    parser.add_argument("--run-timeout", type=float, default=1800.0, metavar="S", help="bound on one run of a tool")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store facts, rounds, medians and ratios here")


def read_settings(values: argparse.Namespace) -> Settings:
    """Raises ConfigError naming the option."""
    model = resolve_model(values.model, cache_dir=default_cache_dir(os.environ))
    llama_model = values.llama_model or (model if model.suffix == ".gguf" else None)
    for option, path in (
        ("--llama-model", llama_model),
        ("--llama-server", values.llama_server),
        ("--llama-bench", values.llama_bench),
        ("--openvino-python", values.openvino_python),
    ):
        if path is not None and not path.is_file():
            raise ConfigError(f"{option} {path}: no such file")
    if llama_model is None and (values.llama_server or values.llama_bench or values.openvino_python):
        raise ConfigError("--model is not a GGUF file, so the peers need --llama-model")
    for option, value in (("--threads", values.threads), ("--rounds", values.rounds)):
        if value < 1:
            raise ConfigError(f"{option} {value}: must be at least 1")
    return Settings(
        model=model,
        llama_model=llama_model,
        threads=values.threads,
        rounds=values.rounds,
        octavo_args={name: typed(value) for name, value in pairs("--octavo-arg", values.octavo_arg).items()},
        llama_args=tuple(values.llama_arg),
        llama_server=values.llama_server,
        llama_bench=values.llama_bench,
        openvino_python=values.openvino_python,
        urls=pairs("--url", values.url),
        ready_timeout_s=values.ready_timeout,
        run_timeout_s=values.run_timeout,
    )


def pairs(option: str, texts: list[str]) -> dict[str, str]:
    """NAME=VALUE texts as a dict. Raises ConfigError for anything else, or a name given twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or name in found:
            raise ConfigError(f"{option} {text!r}: give NAME=VALUE, each name once")
        found[name.replace("-", "_") if option == "--octavo-arg" else name] = value
    return found


def typed(text: str) -> object:
    """true, false and numbers by JSON's rules, everything else as text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text
