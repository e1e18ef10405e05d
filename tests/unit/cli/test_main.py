"""The command: help that teaches, mistakes in one line, nothing imported in vain."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from octavo import __version__
from octavo.cli import main as cli
from octavo.errors import LoadError


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr)."""
    code = cli.run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"octavo {__version__}\n", "")


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == 0
    assert all(name in out for name in cli.COMMANDS) and "Examples" in out


@pytest.mark.parametrize(
    "command", [*([name] for name in cli.COMMANDS), *(["bench", name] for name in ("latency", "throughput", "serve"))]
)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    code, out, _ = run(capsys, *command, "--help")
    assert code == 0 and out.startswith(f"Usage: octavo {' '.join(command)}")


def test_serve_help_shows_sections_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "serve", "--help")
    assert all(
        title in out
        for title in ("Model:", "KV cache:", "Scheduler:", "Compute:", "Server:", "Examples:", "octavo serve model.gguf")
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["sreve"], "did you mean serve?"),
        (["serve", "--prot", "1"], "--port"),
        (["serve", "--port", "99999"], "--port is 99999; it must be 0 to 65535"),
        (["serve", "--tp", "2"], "there is no option --tp; did you mean -tp? (see octavo serve --help)"),
        (["serve", "--threads", "2"], "there is no option --threads; did you mean --num-threads? (see"),
        (["serve", "--temperature", "2"], "there is no option --temperature (see octavo serve --help)"),
        (["serve", "a", "b"], "b"),
        (["serve", "a", "--model", "b"], "MODEL is 'a' and --model is 'b'"),
        (["serve", "--host", "no such host", "--port", "0"], "--host"),
        (["serve", "--api-key", "", "--port", "0"], "--api-key is empty"),
        (["serve", "x" * 5000, "--port", "0"], "File name too long"),
        (["serve", "--chat-template", "/nowhere/x.jinja"], "--chat-template"),
        (["complete", "--prompt", ""], "empty"),
        (["complete", "--prompt", "x", "--temperature", "-1"], "--temperature"),
        (["complete", "--prompt", "x", "--url", "ftp://x"], "--url"),
        (["complete", "/nowhere/model.gguf", "--prompt", "x"], "/nowhere/model.gguf"),
        (["complete", "--prompt", "x", "--max-tokens", "0"], "--max-tokens is 0; it must be a whole number, 1 to 2147483647"),
        (["complete", "--prompt", "x", "--top-p", "0"], "--top-p is 0.0; it must be a number, above 0 and at most 1"),
        (["complete", "--prompt", "x", "--seed", "one"], "--seed is 'one'; it must be a whole number, -92233720368547758"),
        (["tune", "x", "--itl-p99", "-1"], "--itl-p99 is -1.0; it must be a number, above 0"),
        (["bench", "latency", "--num-iters", "0"], "--num-iters is 0; it must be a whole number, 1 or more"),
        (["complete", "--max-tokens"], "--max-tokens needs a value (see octavo complete --help)"),
        (["serve", "--served-model-name"], "--served-model-name needs a value (see octavo serve --help)"),
        (["bench", "serve", "--url"], "--url needs a value (see octavo bench serve --help)"),
        (["pull", "no-such-model"], "no-such-model"),
        (["bench", "serve", "--num-prompts", "0"], "--num-prompts"),
        (["bench", "serve", "--url", "x:y:z"], "--url"),
        (["bench", "latency", "--batch-size", "many"], "--batch-size"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str], arguments: list[str], part: str) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("octavo: error: ") and err.count("\n") == 1 and part in err, err


def test_unreachable_server_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "bench", "serve", "--url", "http://127.0.0.1:1")
    assert code == 1 and err.count("\n") == 1 and "127.0.0.1:1" in err


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`octavo` with a command that raises whatever its argument says."""

    @click.command()
    @click.argument("kind")
    def fail(kind: str) -> None:
        errors: dict[str, BaseException] = {
            "load": LoadError("model.gguf: truncated"),
            "bug": ZeroDivisionError("oops"),
            "interrupt": KeyboardInterrupt(),
        }
        raise errors[kind]

    monkeypatch.setitem(cli.COMMANDS, "fail", (f"{__name__}:fail", "Fails."))
    monkeypatch.setattr(sys.modules[__name__], "fail", fail, raising=False)


@pytest.mark.usefixtures("failing")
def test_errors_have_their_exit_codes_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "fail", "load") == (2, "", "octavo: error: model.gguf: truncated\n")
    code, _, err = run(capsys, "fail", "bug")
    assert code == 1 and err.count("\n") == 1 and "OCTAVO_DEBUG=1" in err
    assert run(capsys, "fail", "interrupt")[0] == 130


@pytest.mark.usefixtures("failing")
def test_debug_variable_lets_tracebacks_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_DEBUG", "1")
    with pytest.raises(LoadError):
        cli.run(["fail", "load"])
    with pytest.raises(ZeroDivisionError):
        cli.run(["fail", "bug"])


def test_help_imports_no_heavy_library() -> None:
    script = (
        "import sys; from octavo.cli.main import run; run(['--help']); run(['--version'])\n"
        "heavy = {'numpy', 'fastapi', 'uvicorn', 'tokenizers', 'rich', 'jinja2', 'prometheus_client', 'torch'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
