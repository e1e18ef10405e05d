"""Declared parameters among the tensors of a container: whole ones, slices of larger ones, heads in pairs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.errors import LoadError
from octavo.loader.bind import bind
from octavo.loader.parameter import Location, Parameter, Part
from octavo.loader.stored import StoredRows, StoredTensor

Arrays = Mapping[str, NDArray[np.float32]]


def matrix(name: str, rows: int, folder: Location, columns: int = 8) -> Parameter:
    return Part(name, rows, Location(f"gguf.{name}"), folder).matrix(columns, "attention", "output")


def bound(declared: list[Parameter], arrays: Arrays) -> dict[str, StoredTensor]:
    def find(name: str, parameter: str) -> StoredTensor | None:
        values = arrays.get(name)
        if values is None:
            return None
        data = values.reshape(1, -1) if values.ndim == 1 else values.reshape(-1, values.shape[-1])
        return StoredRows(parameter, values.shape, "f32", data.view(np.uint8), None, f"model.file: {name}")

    return bind(declared, lambda parameter: parameter.folder, find, "model.file")


def numbers(*shape: int) -> NDArray[np.float32]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def fused_qkv() -> list[Parameter]:
    rows = {"q": (0, 8), "k": (8, 4), "v": (12, 4)}
    return [matrix(name, count, Location("qkv", first)) for name, (first, count) in rows.items()]


def test_fused_parts_are_rows_of_one_tensor() -> None:
    values = numbers(16, 8)
    tensors = bound(fused_qkv(), {"qkv.weight": values})
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        "q.weight": (8, 8),
        "k.weight": (4, 8),
        "v.weight": (4, 8),
    }
    assert np.array_equal(tensors["q.weight"].to_float32(), values[:8])
    assert np.array_equal(tensors["k.weight"].to_float32(), values[8:12])
    assert np.array_equal(tensors["v.weight"].to_float32(), values[12:])
    assert np.shares_memory(tensors["v.weight"].to_float32(), values)
    assert sum(tensor.nbytes for tensor in tensors.values()) == values.nbytes


def test_fused_biases_are_elements_of_one_vector() -> None:
    parts = [Part(name, 4, Location(name), Location("qkv", first)) for name, first in (("k", 0), ("v", 4))]
    tensors = bound([part.bias("attention", "output") for part in parts], {"qkv.bias": numbers(8)})
    assert tensors["v.bias"].shape == (4,) and tensors["v.bias"].to_float32().tolist() == [4, 5, 6, 7]


def test_experts_in_a_stack_are_matrices_of_their_own() -> None:
    stack = numbers(3, 4, 8)
    declared = [matrix(f"experts.{index}.up", 4, Location("up_exps", 4 * index)) for index in range(3)]
    tensors = bound(declared, {"up_exps.weight": stack})
    for index in range(3):
        assert np.array_equal(tensors[f"experts.{index}.up.weight"].to_float32(), stack[index])


def test_rows_that_are_not_rotated_stay_where_they_are() -> None:
    values = numbers(12, 8)
    place = Location("q", interleaved=6, rotary=4)
    q = bound([matrix("q", 12, place)], {"q.weight": values})["q.weight"]
    assert np.array_equal(q.to_float32(), values[[0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]])
    bias = Part("q", 12, Location("q"), place).bias("attention", "output")
    assert bound([bias], {"q.bias": numbers(12)})["q.bias"].to_float32().tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]


def test_heads_in_pairs_become_halves_also_within_a_slice() -> None:
    values = numbers(12, 8)
    whole = bound([matrix("q", 12, Location("q", interleaved=6))], {"q.weight": values})["q.weight"]
    order = [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    assert np.array_equal(whole.to_float32(), values[order])
    assert np.array_equal(whole.to_float32(6, 9), values[[6, 8, 10]])
    declared = [matrix("q", 6, Location("qk", 0, 6)), matrix("k", 6, Location("qk", 6, 6))]
    k = bound(declared, {"qk.weight": values})["k.weight"]
    assert np.array_equal(k.to_float32(), values[[6, 8, 10, 7, 9, 11]])
    assert np.array_equal(k.rows(3, 6).to_float32(), values[[7, 9, 11]])
    assert np.array_equal(k.reordered(np.array([5, 4, 3, 2, 1, 0], np.int32)).to_float32(), values[[11, 9, 7, 10, 8, 6]])


@pytest.mark.parametrize("shape", [(15, 8), (17, 8), (16, 7), (16,)])
def test_a_fused_tensor_of_another_size_is_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(LoadError, match=r"model.file: qkv.weight: has shape .* \[16, 8\]"):
        bound(fused_qkv(), {"qkv.weight": numbers(*shape)})


@pytest.mark.parametrize("shape", [(7, 8), (8, 7), (8,), (1, 8, 8)])
def test_a_whole_tensor_of_another_shape_is_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(LoadError, match=r"model.file: q.weight: has shape .*q.weight \[8, 8\]"):
        bound([matrix("q", 8, Location("q"))], {"q.weight": numbers(*shape)})


def test_a_missing_tensor_is_named_with_the_container() -> None:
    for declared in (fused_qkv(), [matrix("q", 8, Location("qkv"))]):
        with pytest.raises(LoadError, match="model.file: tensor qkv.weight is missing"):
            bound(declared, {})
