"""bind: the parameters that a model declares, found among the tensors of a container."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from octavo.config.model import ModelConfig
from octavo.errors import LoadError
from octavo.loader.parameter import Location, Parameter
from octavo.loader.stored import RowOrder, StoredRows, StoredTensor

Declare = Callable[[ModelConfig], Sequence[Parameter]]
"""A configuration to the parameters of its model, models.registry.declare."""
Find = Callable[[str, str], StoredTensor | None]
"""(tensor name in the container, parameter name) to the whole tensor under the parameter's name; None when there is none."""


def bind(
    declared: Sequence[Parameter], locate: Callable[[Parameter], Location], find: Find, origin: str
) -> dict[str, StoredTensor]:
    """Parameter name -> its tensor: cut out of a larger one and with its rows in order, where the location says so.

    locate   where this container keeps a parameter
    origin   the container, for messages
    Raises: LoadError naming file and tensor when one is missing or has another shape.
    """
    num_rows: Counter[str] = Counter()
    for parameter in declared:
        num_rows[locate(parameter).tensor] += parameter.shape[0]
    tensors: dict[str, StoredTensor] = {}
    for parameter in declared:
        location = locate(parameter)
        tensor = find(location.tensor, parameter.name)
        if tensor is None:
            missing = f"tensor {location.tensor} is missing"
            raise LoadError(f"{origin}: {missing}; the file is incomplete, or its configuration is that of another model")
        tensors[parameter.name] = _bound(tensor, parameter, location, num_rows[location.tensor])
    return tensors


def _bound(tensor: StoredTensor, parameter: Parameter, location: Location, num_rows: int) -> StoredTensor:
    """num_rows: rows of all parameters in this tensor."""
    if isinstance(tensor, StoredRows) and parameter.shape == (1, *tensor.shape):
        tensor = replace(tensor, shape=parameter.shape)  # a matrix of one row, stored as a vector
    if location.first_row is None:
        if tensor.shape != parameter.shape:
            raise LoadError(
                f"{tensor.source}: has shape {list(tensor.shape)}, but the configuration makes {parameter.name}"
                f" {list(parameter.shape)}"
            )
    else:
        columns = parameter.shape[1:]
        rows = tensor.shape[0] if not columns else math.prod(tensor.shape[:-1])
        if rows != num_rows or (columns and tensor.shape[-1:] != columns):
            raise LoadError(
                f"{tensor.source}: has shape {list(tensor.shape)}, but the configuration makes {parameter.name} and what it is"
                f" stored with {[num_rows, *columns]}"
            )
        tensor = tensor.rows(location.first_row, location.first_row + parameter.shape[0])
    if location.interleaved is None:
        return tensor
    rotary = location.interleaved if location.rotary is None else location.rotary
    return tensor.reordered(_half_split_order(parameter.shape[0], location.interleaved, rotary))


def _half_split_order(num_rows: int, head_rows: int, rotary_rows: int) -> RowOrder:
    """Row (half, i) of a head's rotary_rows lies at 2 * i + half: the order that makes two halves of them, int32 [num_rows]."""
    within = np.arange(head_rows, dtype=np.int32)
    within[:rotary_rows] = within[:rotary_rows].reshape(rotary_rows // 2, 2).T.ravel()
    heads = np.arange(0, num_rows, head_rows, dtype=np.int32)[:, None]
    order: RowOrder = (heads + within).ravel()
    return order
