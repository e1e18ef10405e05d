"""octavo run-batch: answer a file of requests."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import click

from octavo.cli.engine_options import engine_config, engine_options, model_argument
from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.cli.lazy_progress import lazy_pull_progress
from octavo.server.batch.command import BatchStopped, run_batch
from octavo.server.batch.runner import Plan, Tally

EXAMPLES = """
octavo run-batch -i requests.jsonl -o answers.jsonl                     the embedded model
octavo run-batch -i requests.jsonl -o answers.jsonl model.gguf --max-num-seqs 32
octavo run-batch -i - -o - < requests.jsonl > answers.jsonl             in a pipe; such a run cannot be gone on with
echo '{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user",
       "content": "Hello!"}]}}' > requests.jsonl
"""


@click.command("run-batch", cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@click.option("--input-file", "-i", required=True, metavar="FILE", help="Requests, one per line; - is standard input.")
@click.option("--output-file", "-o", required=True, metavar="FILE", help="Where the answers go; - is standard output.")
@model_argument
@engine_options
def run_batch_command(model_argument: str | None, input_file: str, output_file: str, **values: Any) -> int:
    """Answer a file of requests with MODEL, in OpenAI's batch format, without a server.

    Each line of the input is {"custom_id", "method": "POST", "url", "body"}, where url is /v1/chat/completions,
    /v1/completions or another route that takes one body and gives one answer. Each line of the output is {"id",
    "custom_id", "response": {"status_code", "request_id", "body"}, "error"}, in the order in which answers are complete:
    find yours by custom_id.

    A run that was stopped, killed even, goes on when the same command is given again: requests whose custom_id has an
    answer in the output are not asked again. A line that is no request gets an error line and stops nothing.
    Exit code: 0 if all answers have status 200, 1 if some have not, 130 after Ctrl-C.
    """
    config = engine_config(model_argument, values)
    with ExitStack() as stack:
        bar = _Bar(stack)
        report = stack.enter_context(lazy_pull_progress())
        try:
            run_batch(config, input_file, output_file, bar.start, report)
        except (BatchStopped, KeyboardInterrupt) as stopped:
            stack.close()
            _say(f"stopped: {bar.text()}; the same command goes on from there")
            return 128 + (stopped.number if isinstance(stopped, BatchStopped) else signal.SIGINT)
    _say(bar.text())
    return 1 if bar.num_failed else 0


class _Bar:
    """A progress bar on stderr, and the line that says how far a run came."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._plan = Plan([], frozenset(), 0, 0)
        self._tally = Tally()

    def start(self, plan: Plan) -> Callable[[Tally], None]:
        rich = import_module("rich.progress")
        console = import_module("rich.console").Console(stderr=True)
        columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeElapsedColumn())
        bar = self._stack.enter_context(rich.Progress(*columns, console=console, transient=True))
        self._plan = plan
        task = bar.add_task("requests", total=plan.num_done + len(plan.lines), completed=plan.num_done)

        def on_done(tally: Tally) -> None:
            self._tally = tally
            failed = f"  {self.num_failed} failed" if self.num_failed else ""
            bar.update(task, completed=plan.num_done + tally.answered, description=f"requests{failed}")

        return on_done

    @property
    def num_failed(self) -> int:
        return self._plan.num_failed + self._tally.failed

    def text(self) -> str:
        done, tally = self._plan.num_done, self._tally
        total = done + len(self._plan.lines)
        before = f", {done} of them by an earlier run" if done else ""
        return f"{done + tally.answered} of {total} requests have their answer{before}; {self.num_failed} failed"


def _say(text: str) -> None:
    print(f"octavo: {text}", file=sys.stderr)
