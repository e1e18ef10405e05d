"""Logging: one line per event on stderr, `time level room message key=value`, under the logger name "octavo"."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import TextIO

_HANDLER_NAME = "octavo"
"""Marks our handler, so that setting up twice replaces it instead of printing twice."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/%+@")


def get_logger(name: str) -> logging.Logger:
    """The logger of one module; call with `__name__`, which stands under "octavo"."""
    return logging.getLogger(name)


def fields(**values: object) -> str:
    """`key=value` pairs for the end of a message; None is left out, unusual text is quoted, so that no value forges a line."""
    return " ".join(f"{key}={_quote(value)}" for key, value in values.items() if value is not None)


def setup_logging(level: str, stream: TextIO | None = None, *, style: str = "text") -> None:
    """Print octavo's messages from `level` (debug, info, warning, error) on. Only entry points call this; a library user's own
    logging setup is left alone. style: "text", or "json" for an object per line."""
    logger = logging.getLogger("octavo")
    for old in [handler for handler in logger.handlers if handler.get_name() == _HANDLER_NAME]:
        logger.removeHandler(old)
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.set_name(_HANDLER_NAME)
    plain = _Formatter("%(asctime)s %(levelname)-7s %(room)s %(message)s", datefmt="%H:%M:%S")
    handler.setFormatter(_JsonFormatter() if style == "json" else plain)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False


def style_in_force() -> str:
    """How this process writes its log: for processes that it starts."""
    handlers = logging.getLogger("octavo").handlers
    return "json" if any(isinstance(handler.formatter, _JsonFormatter) for handler in handlers) else "text"


class _JsonFormatter(logging.Formatter):
    """{"time", "level", "logger", "message"}, "exception" where there is one, and the record's own `facts`."""

    def format(self, record: logging.LogRecord) -> str:
        time_s = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line = {"time": time_s, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({**line, **getattr(record, "facts", {})}, ensure_ascii=False, default=str)


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        record.room = record.name.removeprefix("octavo.")
        return super().format(record)


def _quote(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)
