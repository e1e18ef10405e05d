"""JSON bodies: what is refused before any field is looked at."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.server.json_body import MAX_DEPTH, MAX_NODES, BodyError, check_shape, parse_json_object


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def test_depth_up_to_the_limit_passes() -> None:
    check_shape(nested(MAX_DEPTH))


def test_depth_beyond_the_limit_is_refused() -> None:
    with pytest.raises(BodyError, match="deeper"):
        check_shape(nested(MAX_DEPTH + 1))


def test_wide_values_are_not_deep() -> None:
    check_shape({"prompt": list(range(2 * MAX_NODES)), "list": [[1]] * 1000})


@pytest.mark.parametrize(
    "value", [{"a": [[]] * MAX_NODES}, {"a": [{}] * MAX_NODES}, {"a": [{str(i): 1 for i in range(MAX_NODES)}]}]
)
def test_a_body_of_too_many_pieces_is_refused(value: Any) -> None:
    with pytest.raises(BodyError, match="more than 100000") as caught:
        check_shape(value)
    assert caught.value.code == "json_too_large"


@given(st.binary(max_size=64))
def test_any_bytes_give_an_object_or_a_body_error(raw: bytes) -> None:
    try:
        value = parse_json_object(raw)
    except BodyError as error:
        assert error.status == 400 and error.message
    else:
        assert isinstance(value, dict)
