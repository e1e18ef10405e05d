"""A weight that a checkpoint keeps in several arrays, as AWQ and GPTQ do: it enters both backends like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.worker_driver import Driver, Request, make_worker, tiny_checkpoint

from octavo.errors import LoadError
from octavo.loader.bind import bind
from octavo.loader.checkpoint import Checkpoint
from octavo.loader.formats import QuantBlocks, evaluate
from octavo.loader.parameter import Parameter
from octavo.loader.stored import RowOrder, StoredRows, StoredTensor
from octavo.sampling_params import SamplingParams

F32 = NDArray[np.float32]
GROUP = 32


@dataclass(frozen=True)
class TwoArrays:
    """Codes uint8 [rows, columns] around 8 and scales float32 [rows, groups of 32 columns]."""

    name: str
    codes: NDArray[np.uint8]
    scales: F32
    source: str
    format: str = "two arrays"
    bits: int | None = 4
    group: int | None = GROUP

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes

    def to_float32(self, first_row: int = 0, last_row: int | None = None) -> F32:
        return evaluate(self.to_codes())[first_row:last_row]

    def to_codes(self) -> QuantBlocks:
        return QuantBlocks(self.codes, 4, GROUP, 8, self.scales, None, "f32")

    def rows(self, first: int, last: int) -> TwoArrays:
        return replace(self, codes=self.codes[first:last], scales=self.scales[first:last])

    def reordered(self, order: RowOrder) -> TwoArrays:
        return replace(self, codes=self.codes[order], scales=self.scales[order])

    def check_finite(self) -> None:
        if not np.isfinite(self.scales).all():
            raise LoadError(f"{self.source}: a scale is not finite")


def is_linear(parameter: Parameter) -> bool:
    return len(parameter.shape) == 2 and parameter.role in ("attention", "mlp")


def two_arrays(parameter: Parameter) -> TwoArrays:
    """Random codes whose products keep activations near 1."""
    rng = np.random.default_rng(len(parameter.name) + parameter.shape[0])
    rows, columns = parameter.shape
    scales = rng.uniform(0.02, 0.04, (rows, -(-columns // GROUP))).astype(np.float32)
    codes = rng.integers(0, 16, (rows, columns)).astype(np.uint8)
    return TwoArrays(parameter.name, codes, scales, f"model: {parameter.name}")


def checkpoints(folder: Path) -> tuple[Checkpoint, Checkpoint]:
    """A tiny model whose layers are held in two arrays each, and one that holds their values as float32."""
    checkpoint = tiny_checkpoint(folder, "llama-gqa")
    declared = {parameter.name: parameter for parameter in checkpoint.parameters}

    def find(name: str, parameter: str) -> StoredTensor | None:
        wanted = declared[parameter]
        return two_arrays(wanted) if is_linear(wanted) else checkpoint.tensors[parameter]

    tensors = bind(checkpoint.parameters, lambda parameter: parameter.folder, find, "model")
    values: dict[str, StoredTensor] = {
        name: StoredRows(name, tensor.shape, "f32", tensor.to_float32().view(np.uint8), None, tensor.source)
        if isinstance(tensor, TwoArrays)
        else tensor
        for name, tensor in tensors.items()
    }
    return replace(checkpoint, tensors=tensors), replace(checkpoint, tensors=values)


def answers(checkpoint: Checkpoint, device: str, dtype: str) -> Sequence[object]:
    sampling = SamplingParams(temperature=0.0, max_tokens=12, logprobs=3)
    driver = Driver(make_worker(checkpoint, device, dtype=dtype), [Request([5, 9, 77, 31, 40], sampling)])
    return driver.run(12)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_its_exact_values_are_used_where_floats_are_asked_for(tmp_path: Path, device: str) -> None:
    parts, values = checkpoints(tmp_path)
    assert answers(parts, device, "float32") == answers(values, device, "float32")


def test_its_codes_are_used_as_they_are_where_nothing_is_asked_for(tmp_path: Path) -> None:
    parts, values = checkpoints(tmp_path)
    # The reference backend multiplies the exact values; the native one keeps the codes and rounds activations.
    assert answers(parts, "reference", "auto") == answers(values, "reference", "auto")
    assert answers(parts, "cpu", "auto") != answers(values, "cpu", "auto")


def test_a_bad_scale_is_refused_with_its_name(tmp_path: Path) -> None:
    parts, _ = checkpoints(tmp_path)
    name = "model.layers.1.mlp.up_proj.weight"
    bad = parts.tensors[name]
    assert isinstance(bad, TwoArrays)
    scales = bad.scales.copy()
    scales[3, 1] = np.nan
    damaged = replace(parts, tensors={**parts.tensors, name: replace(bad, scales=scales)})
    for device in ("reference", "cpu"):
        with pytest.raises(LoadError, match=f"model: {name}: a scale is not finite"):
            make_worker(damaged, device, dtype="auto")
