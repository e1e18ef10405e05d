"""docs/errors.md knows every code and field list of the server."""

from __future__ import annotations

import re
from pathlib import Path

from octavo.server.body import HARMLESS_FIELDS, UNSUPPORTED_FIELDS
from octavo.server.limits_page import in_page, table

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "errors.md").read_text()


def test_the_table_of_limits_is_up_to_date() -> None:
    assert in_page(PAGE) == PAGE, "run: python -m octavo.server.limits_page docs/errors.md"
    assert table() in PAGE and "| `stop` | 16 | strings |" in PAGE


def test_every_code_in_the_source_is_documented() -> None:
    sources = [ROOT / "src/octavo/errors.py", *(ROOT / "src/octavo/server").rglob("*.py")]
    codes = {code for file in sources for code in re.findall(r'code(?:: str)? ?= ?"(\w+)"', file.read_text())}
    internal = {"invalid_config", "load_error", "not_found", "http_error", "client_closed"}
    assert {code for code in codes - internal if f"`{code}`" not in PAGE} == set()


def test_every_harmless_and_unsupported_field_is_documented() -> None:
    fields = {name for name in HARMLESS_FIELDS | UNSUPPORTED_FIELDS.keys() if not name.startswith("guided_")}
    neutral = {"spaces_between_special_tokens", "detokenize"}
    assert {name for name in fields - neutral if f"`{name}`" not in PAGE} == set()
