"""The Jinja environment of chat templates: sandboxed, with the filters and tags that transformers gives them.

Templates come with model files and are untrusted: no attribute of Python's internals, no mutation of what they are given, no
unbounded repetition. Source: transformers, utils/chat_template_utils.py (behaviour).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_REPEATED = 1_000_000
"""Longest sequence that `*` may build, and most bits that `**` may give, in a template."""


class TemplateRaised(jinja2.TemplateError):
    """The template itself refused the conversation through raise_exception()."""


class _GenerationTag(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %} marks what the assistant wrote, for training; here it only renders its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller: Macro) -> str:
        return str(caller())


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        """Evaluate left * right or left ** right unless the result would be huge."""
        if operator == "*":
            for sequence, count in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and isinstance(count, int) and len(sequence) * count > MAX_REPEATED:
                    raise SecurityError(f"the template repeats a sequence beyond {MAX_REPEATED} items")
        elif isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > MAX_REPEATED:
            raise SecurityError(f"the template computes a power beyond {MAX_REPEATED} bits")
        return super().call_binop(context, operator, left, right)


def make_environment(clock: Callable[[], datetime]) -> ImmutableSandboxedEnvironment:
    """A fresh environment; clock answers strftime_now()."""
    # Not optimised: the optimiser computes constant expressions such as 'a'|center(10**9) while it compiles.
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[_GenerationTag, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda layout: clock().strftime(layout)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """json.dumps; Jinja's own filter would escape <, > and & for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateRaised(str(message))
