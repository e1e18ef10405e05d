"""The rules of --dtype and --quantization: every combination is honoured or refused, none is ignored."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.errors import LoadError
from octavo.loader.formats import KNOWN_FORMATS
from octavo.loader.parameter import Axis, Role
from octavo.loader.stored import StoredRows, StoredTensor
from octavo.ops.weight_storage import Codes, WeightStorage
from octavo.ops.weight_storage import weight_storage as storage_by_rule

INT8, INT4 = Codes("int8", 32), Codes("int4", 32)
QUERY, OUTPUT = "model.layers.3.self_attn.q_proj.weight", "model.layers.3.self_attn.o_proj.weight"
UP = "model.layers.3.mlp.up_proj.weight"
EXPERT_UP, EXPERT_DOWN = "model.layers.3.mlp.experts.7.up_proj.weight", "model.layers.3.mlp.experts.7.down_proj.weight"
ROUTER = "model.layers.3.mlp.gate.weight"
LAYER, HEAD, EMBEDDING = "model.layers.3.mlp.down_proj.weight", "lm_head.weight", "model.embed_tokens.weight"


KINDS: dict[str, tuple[Role, Axis | None]] = {
    QUERY: ("attention", "output"),
    OUTPUT: ("attention", "input"),
    UP: ("mlp", "output"),
    LAYER: ("mlp", "input"),
    EXPERT_UP: ("expert", "output"),
    EXPERT_DOWN: ("expert", "input"),
    ROUTER: ("router", None),
    HEAD: ("head", "output"),
    EMBEDDING: ("embedding", "output"),
}


def weight_storage(part: StoredTensor, dtype: str, quantization: str, group_size: int = 32) -> WeightStorage:
    return storage_by_rule(part, *KINDS[part.name], dtype, quantization, group_size)


def tensor(format: str, name: str = LAYER, columns: int = 256) -> StoredRows:
    """Only the header matters here."""
    return StoredRows(name, (2, columns), format, np.empty((2, 0), np.uint8), None, "model.file")


@pytest.mark.parametrize("quantization", ["auto", "none"])
@pytest.mark.parametrize("format", KNOWN_FORMATS)
def test_auto_and_none_keep_what_the_file_has_unless_a_dtype_is_given(format: str, quantization: str) -> None:
    kept = format if format in ("f32", "f16", "bf16") else None
    assert weight_storage(tensor(format), "auto", quantization) == WeightStorage(kept, None)
    assert weight_storage(tensor(format), "bfloat16", quantization) == WeightStorage("bf16", None)


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_floats_are_quantised_and_int4_spares_embedding_and_head(dtype: str) -> None:
    assert weight_storage(tensor("f32"), dtype, "int8") == WeightStorage("f32", INT8)
    assert weight_storage(tensor("f32"), dtype, "int4") == WeightStorage("f32", INT4)
    for name in (HEAD, EMBEDDING):
        assert weight_storage(tensor("f32", name), dtype, "int4") == WeightStorage("f32", INT8)


def test_an_explicit_dtype_quantises_blocks_anew() -> None:
    assert weight_storage(tensor("q6_k"), "float32", "int4") == WeightStorage("f32", INT4)
    assert weight_storage(tensor("q4_0"), "float16", "int8") == WeightStorage("f16", INT8)


@pytest.mark.parametrize(
    ("format", "name", "quantization"),
    [("q8_0", LAYER, "int8"), ("q6_k", LAYER, "int8"), ("q4_k", LAYER, "int4"), ("q8_0", HEAD, "int4")],
)
def test_blocks_that_have_the_width_already_are_kept(format: str, name: str, quantization: str) -> None:
    assert weight_storage(tensor(format, name), "auto", quantization) == WeightStorage(None, None)


@pytest.mark.parametrize(("format", "quantization"), [("q4_1", "int8"), ("q8_0", "int4"), ("q4_1", "w8a8")])
def test_blocks_of_another_width_are_refused_with_the_way_out(format: str, quantization: str) -> None:
    with pytest.raises(
        LoadError, match=f"model.file: .*down_proj.* {format}, and --quantization {quantization}.*--dtype float32"
    ):
        weight_storage(tensor(format), "auto", quantization)


@pytest.mark.parametrize("quantization", ["int8", "int4", "w8a8"])
def test_columns_that_fill_no_group_are_refused_by_name(quantization: str) -> None:
    with pytest.raises(LoadError, match=f"model.file: {quantization} needs a multiple of 32 columns, .*down_proj.* has 40"):
        weight_storage(tensor("f32", columns=40), "auto", quantization)


def test_groups_have_the_size_asked_for() -> None:
    assert weight_storage(tensor("f32"), "auto", "int4", 128) == WeightStorage("f32", Codes("int4", 128))
    assert weight_storage(tensor("f32", EMBEDDING), "auto", "int4", 128) == WeightStorage("f32", Codes("int8", 128))


def test_blocks_are_no_larger_groups() -> None:
    with pytest.raises(LoadError, match="q8_0, and --quantization int8 would do it again"):
        weight_storage(tensor("q8_0"), "auto", "int8", 64)


def test_w8a8_has_one_scale_per_output_but_spares_what_it_would_hurt() -> None:
    for name in (OUTPUT, UP, EXPERT_UP):
        assert weight_storage(tensor("bf16", name), "auto", "w8a8") == WeightStorage("bf16", Codes("w8a8", 256))
        with pytest.raises(LoadError, match="quantised in the file already, as q8_0, and --quantization w8a8"):
            weight_storage(tensor("q8_0", name), "auto", "w8a8")
    for name in (HEAD, EMBEDDING, LAYER, EXPERT_DOWN, QUERY):
        assert weight_storage(tensor("f32", name), "auto", "w8a8") == WeightStorage("f32", INT8)
        assert weight_storage(tensor("q8_0", name), "auto", "w8a8") == WeightStorage(None, None)


@pytest.mark.parametrize("quantization", ["int8", "int4", "w8a8"])
@pytest.mark.parametrize(("format", "float_type"), [("f32", "f32"), ("bf16", "bf16"), ("q8_0", None)])
def test_routers_stay_what_they_are(quantization: str, format: str, float_type: str | None) -> None:
    assert weight_storage(tensor(format, ROUTER), "auto", quantization) == WeightStorage(float_type, None)


def test_w8a8_refuses_more_columns_than_its_sums_can_hold() -> None:
    assert weight_storage(tensor("f32", OUTPUT, columns=65536), "auto", "w8a8").codes == Codes("w8a8", 65536)
    with pytest.raises(LoadError, match="model.file: w8a8 sums at most 65536 columns, .*o_proj.* has 65568; .*int8"):
        weight_storage(tensor("f32", OUTPUT, columns=65568), "auto", "w8a8")
