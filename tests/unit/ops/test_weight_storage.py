"""The rules of --dtype and --quantization: every combination is honoured or refused, none is ignored."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.errors import LoadError
from octavo.loader.formats import KNOWN_FORMATS
from octavo.loader.stored import StoredTensor
from octavo.ops.weight_storage import WeightStorage, weight_storage

LAYER, HEAD, EMBEDDING = "model.layers.3.mlp.down_proj.weight", "lm_head.weight", "model.embed_tokens.weight"


def tensor(format: str, name: str = LAYER, columns: int = 256) -> StoredTensor:
    """Only the header matters here."""
    return StoredTensor(name, (2, columns), format, np.empty((2, 0), np.uint8), None, "model.file")


@pytest.mark.parametrize("quantization", ["auto", "none"])
@pytest.mark.parametrize("format", KNOWN_FORMATS)
def test_auto_and_none_keep_what_the_file_has_unless_a_dtype_is_given(format: str, quantization: str) -> None:
    kept = format if format in ("f32", "f16", "bf16") else None
    assert weight_storage(tensor(format), "auto", quantization) == WeightStorage(kept, None)
    assert weight_storage(tensor(format), "bfloat16", quantization) == WeightStorage("bf16", None)


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_floats_are_quantised_and_int4_spares_embedding_and_head(dtype: str) -> None:
    assert weight_storage(tensor("f32"), dtype, "int8") == WeightStorage("f32", "q8_0")
    assert weight_storage(tensor("f32"), dtype, "int4") == WeightStorage("f32", "q4_1")
    for name in (HEAD, EMBEDDING):
        assert weight_storage(tensor("f32", name), dtype, "int4") == WeightStorage("f32", "q8_0")


def test_an_explicit_dtype_quantises_blocks_anew() -> None:
    assert weight_storage(tensor("q6_k"), "float32", "int4") == WeightStorage("f32", "q4_1")
    assert weight_storage(tensor("q4_0"), "float16", "int8") == WeightStorage("f16", "q8_0")


@pytest.mark.parametrize(
    ("format", "name", "quantization"),
    [("q8_0", LAYER, "int8"), ("q6_k", LAYER, "int8"), ("q4_k", LAYER, "int4"), ("q8_0", HEAD, "int4")],
)
def test_blocks_that_have_the_width_already_are_kept(format: str, name: str, quantization: str) -> None:
    assert weight_storage(tensor(format, name), "auto", quantization) == WeightStorage(None, None)


@pytest.mark.parametrize(("format", "quantization"), [("q4_1", "int8"), ("q8_0", "int4")])
def test_blocks_of_another_width_are_refused_with_the_way_out(format: str, quantization: str) -> None:
    with pytest.raises(
        LoadError, match=f"model.file: .*down_proj.* {format}, and --quantization {quantization}.*--dtype float32"
    ):
        weight_storage(tensor(format), "auto", quantization)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_columns_that_fill_no_group_are_refused_by_name(quantization: str) -> None:
    with pytest.raises(LoadError, match=f"model.file: {quantization} needs a multiple of 32 columns, .*down_proj.* has 40"):
        weight_storage(tensor("f32", columns=40), "auto", quantization)
