"""Log lines: fields cannot forge lines, setting up twice prints once."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from octavo.log import fields, get_logger, setup_logging


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    logger = logging.getLogger("octavo")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers, logger.propagate = handlers, propagate
    logger.setLevel(level)


def test_fields_quote_what_could_forge_a_line() -> None:
    assert fields(id="a\nb", plain="x-1", none=None, seconds=1.23456) == 'id="a\\nb" plain=x-1 seconds=1.235'
    assert fields(empty="") == 'empty=""'


def test_setting_up_twice_prints_once() -> None:
    setup_logging("info", io.StringIO())
    stream = io.StringIO()
    setup_logging("info", stream)
    get_logger("octavo.engine.core.engine_core").info("hello")
    get_logger("octavo.engine.core.engine_core").debug("not this")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("INFO    engine.core.engine_core hello")
