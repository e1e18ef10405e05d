"""octavo chat: talk to a model."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

import click
from rich.console import Console

from octavo.cli.conversation import Sampling, TextSource
from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.cli.markdown_stream import MarkdownStream
from octavo.cli.source_options import open_source, sampling_of, source_options
from octavo.errors import ContextLengthError, InvalidRequestError, OctavoError

EXAMPLES = """
octavo chat                                      the embedded model
octavo chat model.gguf --system "Answer briefly." --temperature 0
octavo chat --url http://127.0.0.1:8000          a running server
"""

HELP = """\
/help           this list
/reset          forget the conversation
/system TEXT    set the system message and start anew; without TEXT, remove it
/settings       the sampling settings in force
/exit           leave (Ctrl-D does, too)
Ctrl-C          stop the answer under way
A line that ends with \\ goes on in the next one."""


@click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@click.option("--system", metavar="TEXT", help="System message.")
@source_options
def chat(model_argument: str | None, system: str | None, **values: Any) -> None:
    """Talk to MODEL in the terminal; the embedded model without one."""
    console = Console(highlight=False)
    with suppress(ImportError):  # not everywhere; with it input() has line editing and a history
        import_module("readline")
    source = open_source(model_argument, values)
    try:
        Session(source, console, sampling_of(values), system).run()
    finally:
        source.close()


class Session:
    """One conversation: reads lines, keeps the messages, prints answers."""

    def __init__(self, source: TextSource, console: Console, sampling: Sampling, system: str | None) -> None:
        self._source = source
        self._console = console
        self._sampling = sampling
        self._system = system
        self.messages: list[dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = [] if self._system is None else [{"role": "system", "content": self._system}]

    def run(self) -> None:
        """Until /exit or the end of the input."""
        self._console.print(self._source.model_name, style="bold", markup=False, end="")
        self._console.print("  /help lists the commands")
        self._print_settings()
        while True:
            try:
                line = self._read()
            except EOFError:
                self._console.print()
                return
            except KeyboardInterrupt:
                self._console.print("\n(/exit or Ctrl-D leaves)")
                continue
            if line.startswith("/"):
                if not self.command(line):
                    return
            elif line.strip():
                self.ask(line)

    def command(self, line: str) -> bool:
        """Run a /command; False ends the session."""
        name, _, argument = line.partition(" ")
        if name in ("/exit", "/quit", "/bye"):
            return False
        if name == "/reset":
            self.reset()
            self._console.print("(the conversation is forgotten)")
        elif name == "/system":
            self._system = argument.strip() or None
            self.reset()
            self._console.print("(system message set)" if self._system else "(system message removed)")
        elif name == "/settings":
            self._print_settings()
        elif name == "/help":
            self._console.print(HELP, markup=False)
        else:
            self._console.print(f"{name} is no command; /help lists them", markup=False)
        return True

    def _print_settings(self) -> None:
        self._console.print(f"settings: {self._source.settings(self._sampling)}", style="dim", markup=False)

    def ask(self, text: str) -> None:
        """One turn. After an error the question is taken back, so that the next one starts from a sound conversation."""
        self.messages.append({"role": "user", "content": text})
        stream = MarkdownStream(self._console)
        pieces: list[str] = []
        try:
            for piece in self._source.answer(self.messages, self._sampling):
                pieces.append(piece)
                stream.feed(piece)
        except OctavoError as error:
            stream.close()
            self.messages.pop()
            hint = " (/reset makes room)" if isinstance(error, ContextLengthError) else ""
            self._console.print(f"error: {error.message}{hint}", style="red", markup=False)
            if not isinstance(error, InvalidRequestError) and error.status != 500:
                raise
            return
        stream.close()
        if self._source.interrupted:
            self._console.print("(stopped)", style="dim")
        self.messages.append({"role": "assistant", "content": "".join(pieces)})

    def _read(self) -> str:
        """One input, over several lines where they end with a backslash."""
        lines = []
        prompt = "> " if self._console.is_terminal else ""
        while (line := input(prompt)).endswith("\\"):
            lines.append(line[:-1])
            prompt = ". " if prompt else ""
        return "\n".join([*lines, line])
