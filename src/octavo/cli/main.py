"""octavo: the command. Commands are imported when they are called, so that --help and mistakes answer at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from octavo import __version__
from octavo.cli.lazy_group import LazyGroup
from octavo.config.flags import debug_enabled
from octavo.errors import OctavoError, did_you_mean, not_enough_memory

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("octavo.cli.serve:serve", "Serve a model over an OpenAI-compatible HTTP API."),
    "chat": ("octavo.cli.chat:chat", "Talk to a model in the terminal."),
    "complete": ("octavo.cli.complete:complete", "Continue a text, from --prompt or from standard input."),
    "run-batch": ("octavo.cli.run_batch:run_batch_command", "Answer a file of requests, in OpenAI's batch format."),
    "keys": ("octavo.cli.keys:keys", "Add, list and revoke API keys with limits."),
    "pull": ("octavo.cli.pull:pull", "Fetch a model into the cache."),
    "bench": ("octavo.cli.bench:bench", "Measure latency, throughput, or a running server."),
    "benchmark": ("octavo.cli.benchmark:benchmark", "Run a batch offline; --profile says where the time goes, with advice."),
    "simulate": ("octavo.cli.simulate:simulate", "Run a trace through the scheduler, without a model: plan a fleet."),
    "tune": ("octavo.cli.tune:tune", "Find the settings that carry a trace best."),
    "eval": ("octavo.cli.eval:evaluate", "Measure accuracy: perplexity on a text, divergence between two storage types."),
    "doctor": ("octavo.cli.doctor:doctor", "Check what keeps a server from starting, and how to mend it."),
    "collect-env": ("octavo.cli.collect_env:collect_env", "Print what a bug report needs: versions, CPU, memory, limits."),
}
"""name -> (where it lives, its line in the help). The line is repeated here so that the help imports no command."""

EXAMPLES = """
octavo serve                                  serve the embedded SmolLM2-135M-Instruct on port 8000
octavo serve ./Qwen3-0.6B --port 9000         serve a Hugging Face folder
octavo serve model.gguf --max-model-len 4096  serve a GGUF file
octavo chat                                   talk to the embedded model, no server needed
echo "Once upon a time" | octavo complete     continue a text
octavo bench serve --url http://127.0.0.1:8000 --num-prompts 100 --max-concurrency 16
"""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    examples=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, "--version", message="octavo %(version)s")
def octavo() -> None:
    """Serve large language models: small, quick, and the same answer to the same request.

    `octavo COMMAND --help` explains a command.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point. A user's mistake is one line on stderr and exit code 2; OCTAVO_DEBUG=1 shows tracebacks."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run a command line; returns the exit code."""
    try:
        result = octavo.main(arguments or ["--help"], prog_name="octavo", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        return _fail(_one_line(error), 2)
    except OctavoError as error:
        if debug_enabled():
            raise
        return _fail(error.message, error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt):  # click has ended the terminal's line with ^C already
            print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has left. Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except MemoryError as error:
        if debug_enabled():
            raise
        return _fail(not_enough_memory(error), 1)
    except Exception as error:
        if debug_enabled():
            raise
        return _fail(f"internal error: {type(error).__name__}: {error} (OCTAVO_DEBUG=1 shows where)", 1)


def _one_line(error: click.ClickException) -> str:
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param is not None else None
    if isinstance(error, click.BadParameter) and isinstance(kind, (click.IntRange, click.FloatRange)):
        text = _out_of_range(error, kind)
    if isinstance(error, click.NoSuchOption):
        flags = [flag for param in context.command.params for flag in param.opts] if context is not None else []
        known = [flag[2:] for flag in flags if flag.startswith("--")]
        name = error.option_name
        # The dashes are no part of what is alike; -tp is an option with one.
        hint = f"; did you mean {name[1:]}?" if name[1:] in flags else did_you_mean(name.lstrip("-"), known, "--")
        text = f"there is no option {name}{hint}"
    if isinstance(error, click.BadOptionUsage) and error.message.endswith("requires an argument."):
        text = f"{error.option_name} needs a value"
    command = f"{context.command_path} --help" if context is not None else "octavo --help"
    return f"{text.rstrip('.')} (see {command})"


def _out_of_range(error: click.BadParameter, kind: click.IntRange | click.FloatRange) -> str:
    """What a number should be, in the words of the options of the configuration."""
    low, high = (str(limit).removesuffix(".0") for limit in (kind.min, kind.max))
    if kind.max is None:
        limits = f"above {low}" if kind.min_open else f"{low} or more"
    else:
        limits = f"above {low} and at most {high}" if kind.min_open else f"{low} to {high}"
    noun = "a whole number" if isinstance(kind, click.IntRange) else "a number"
    value = error.message.partition(" is not ")[0]
    flag = max(error.param.opts, key=len) if error.param is not None else "the value"
    return f"{flag} is {value[:100]}; it must be {noun}, {limits}"


def _fail(message: str, code: int) -> int:
    print(f"octavo: error: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
