"""Typed reading of configuration keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import LoadError
from octavo.loader.fields import Fields, parse_json_object, read_json_object

FIELDS = Fields({"a.count": 3, "a.whole": 4.0, "a.name": "x", "a.on": True, "a.none": None, "a.part": {"k": 1}}, "f.json", "a.")


def test_values_of_the_right_type_are_returned() -> None:
    assert FIELDS.integer("count") == 3 and FIELDS.integer("whole") == 4 and FIELDS.number("count") == 3.0
    assert FIELDS.text("name") == "x" and FIELDS.flag("on", False) is True


def test_absent_and_null_keys_take_the_default() -> None:
    assert FIELDS.integer("absent", 7) == FIELDS.integer("none", 7) == 7
    assert FIELDS.optional_number("none") is None and FIELDS.section("absent") is None


def test_errors_name_source_prefix_and_key() -> None:
    with pytest.raises(LoadError, match=r"f\.json: a\.absent is missing"):
        FIELDS.integer("absent")
    with pytest.raises(LoadError, match=r"f\.json: a\.count is 3, expected 10 to 20"):
        FIELDS.integer("count", low=10, high=20)
    with pytest.raises(LoadError, match=r"f\.json: a\.name is 'x', expected a number"):
        FIELDS.number("name")
    section = FIELDS.section("part")
    assert section is not None
    with pytest.raises(LoadError, match=r"f\.json: a\.part: j is missing"):
        section.value("j")


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(LoadError) as caught:
        Fields({"k": "y" * 10_000}, "f.json").integer("k")
    assert len(caught.value.message) < 200


def test_repeated_json_keys_are_refused() -> None:
    with pytest.raises(LoadError, match="'b' appears twice"):
        parse_json_object('{"a": 1, "b": 2, "b": 3}', "f.json")


def test_a_missing_json_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no such file"):
        read_json_object(tmp_path / "absent.json")
    with pytest.raises(LoadError, match="cannot be read"):
        read_json_object(tmp_path)
