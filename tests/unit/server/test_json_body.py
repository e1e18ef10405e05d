"""JSON bodies: what is refused before any field is looked at."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.server.json_body import MAX_DEPTH, BodyError, check_depth, parse_json_object


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def test_depth_up_to_the_limit_passes() -> None:
    check_depth(nested(MAX_DEPTH))


def test_depth_beyond_the_limit_is_refused() -> None:
    with pytest.raises(BodyError, match="deeper"):
        check_depth(nested(MAX_DEPTH + 1))


def test_wide_values_are_not_deep() -> None:
    check_depth({"prompt": list(range(100_000)), "list": [[1]] * 1000})


@given(st.binary(max_size=64))
def test_any_bytes_give_an_object_or_a_body_error(raw: bytes) -> None:
    try:
        value = parse_json_object(raw)
    except BodyError as error:
        assert error.status == 400 and error.message
    else:
        assert isinstance(value, dict)
