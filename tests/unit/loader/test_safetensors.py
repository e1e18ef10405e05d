"""Safetensors files and folders: what is read and what is refused, by name."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tests.checkpoints import open_checkpoint

from octavo.errors import LoadError
from octavo.loader.safetensors import SafetensorsFile, open_folder

WriteFolder = Callable[..., Path]


def refused(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(LoadError) as caught:
        SafetensorsFile(path)
    assert "bad.safetensors" in caught.value.message and "\n" not in caught.value.message
    return caught.value.message


def with_header(header: object, body: bytes = b"\0" * 64) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def entry(dtype: object = "F32", shape: object = (4,), offsets: object = (0, 16)) -> dict[str, object]:
    return {"w": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def test_files_of_the_safetensors_library_are_read_exactly(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((6, 10)).astype(np.float32)
    arrays: dict[str, NDArray[np.generic]] = {
        "a": values,
        "b": values.astype(np.float16),
        "c": values[0].copy(),
    }
    save_file(arrays, tmp_path / "x.safetensors")
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert file.entries.keys() == arrays.keys()
    for name, array in arrays.items():
        tensor = file.tensor(name, name)
        assert tensor.shape == array.shape
        assert np.array_equal(tensor.to_float32(), array.astype(np.float32))
        assert np.shares_memory(tensor.data, file.mapped.data), "weights stay in the memory map"


def test_bfloat16_is_read_exactly(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    values = np.array([1.0, -2.5, 0.15625, 3e38], dtype=np.float32)
    body = (values.view(np.uint32) >> 16).astype(np.uint16)
    path.write_bytes(with_header(entry("BF16", [2, 2], [0, 8]), body.tobytes()))
    expected = (body.astype(np.uint32) << 16).view(np.float32).reshape(2, 2)
    assert np.array_equal(SafetensorsFile(path).tensor("w", "w").to_float32(), expected)


def test_unaligned_data_is_read_correctly(tmp_path: Path) -> None:
    values = np.arange(4, dtype=np.float32)
    for padding in range(4):
        path = tmp_path / f"{padding}.safetensors"
        path.write_bytes(with_header(json.dumps(entry()).encode() + b" " * padding, values.tobytes()))
        assert np.array_equal(SafetensorsFile(path).tensor("w", "w").to_float32(), values)


@pytest.mark.parametrize("content", [b"", b"\0" * 7])
def test_a_file_too_short_for_a_header_is_refused(tmp_path: Path, content: bytes) -> None:
    refused(tmp_path, content)


@pytest.mark.parametrize("length", [65, 1 << 40, (1 << 64) - 1])
def test_an_absurd_header_length_is_refused(tmp_path: Path, length: int) -> None:
    assert f"header of {length} bytes" in refused(tmp_path, struct.pack("<Q", length) + b"\0" * 64)


@pytest.mark.parametrize(
    "header", [b"{", b"[]", b"\xff\xff", b"[" * 20_000, b'{"w": 1}', b'{"a": 1, "a": 1}', b'{"w": {"dtype": "F32"}}', b"1e999"]
)
def test_a_malformed_header_is_refused(tmp_path: Path, header: bytes) -> None:
    refused(tmp_path, with_header(header))


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (entry(offsets=[0, 1 << 40]), "truncated"),
        (entry(offsets=[16, 0]), "truncated"),
        (entry(offsets=[0, 12]), "takes 16 bytes, not 12"),
        (entry(shape=[1 << 61, 1 << 61]), "takes"),
        (entry(shape=[-4]), "malformed"),
        (entry(shape=["4"]), "malformed"),
        (entry(shape=[True] * 4), "malformed"),
        (entry(offsets=[0]), "malformed"),
        (entry(dtype=7), "malformed"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused_by_name(tmp_path: Path, bad: dict[str, object], expected: str) -> None:
    message = refused(tmp_path, with_header(bad))
    assert "tensor w" in message and expected in message


@pytest.mark.parametrize("dtype", ["I64", "F8_E4M3", "F64", "Q17"])
def test_an_unsupported_dtype_is_named_when_the_tensor_is_needed(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "x.safetensors"
    size = {"I64": 32, "F64": 32}.get(dtype, 4)
    path.write_bytes(with_header(entry(dtype, [4], [0, size])))
    file = SafetensorsFile(path)
    with pytest.raises(LoadError, match=rf"x\.safetensors: w: dtype {dtype} is not supported; supported: F32, F16, BF16"):
        file.tensor("w", "w")


def test_a_truncated_file_is_refused(write_folder: WriteFolder) -> None:
    path = write_folder() / "model.safetensors"
    content = path.read_bytes()
    for length in [*range(0, len(content), 9973), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(LoadError, match=r"model\.safetensors"):
            SafetensorsFile(path)


def test_a_sharded_folder_equals_the_single_file(write_folder: WriteFolder) -> None:
    whole = {name: tensor.to_float32().copy() for name, tensor in open_checkpoint(write_folder()).tensors.items()}
    folder = write_folder(shards=3)
    (folder / "model.safetensors").unlink()
    parts = open_checkpoint(folder).tensors
    assert whole.keys() == parts.keys()
    assert all(np.array_equal(values, parts[name].to_float32()) for name, values in whole.items())


def test_missing_shards_are_named(write_folder: WriteFolder) -> None:
    folder = write_folder(shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(LoadError, match=r"missing 1 of 3 shards: model-00002-of-00003\.safetensors"):
        open_folder(folder)


def change_index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def test_what_the_shards_hold_counts_and_not_what_the_index_says(write_folder: WriteFolder) -> None:
    folder = write_folder(shards=2)
    names = set(open_checkpoint(folder).tensors)
    change_index(folder, lambda weight_map: weight_map.update({"extra.weight": "model-00001-of-00002.safetensors"}))
    assert set(open_checkpoint(folder).tensors) == names
    change_index(folder, lambda weight_map: weight_map.pop("model.norm.weight"))
    assert set(open_checkpoint(folder).tensors) == names
    change_index(folder, lambda weight_map: weight_map.update({"lm_head.weight": "model-00002-of-00002.safetensors"}))
    assert set(open_checkpoint(folder).tensors) == names


@pytest.mark.parametrize(
    "content", ['{"weight_map": {"model.norm.weight": "gone-00001-of-00009.safetensors"}}', "{}", "no json"]
)
def test_an_index_of_another_upload_beside_a_whole_file_is_not_looked_at(write_folder: WriteFolder, content: str) -> None:
    folder = write_folder()
    (folder / "model.safetensors.index.json").write_text(content)
    assert "model.norm.weight" in open_checkpoint(folder).tensors


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/passwd", "..", "", 7, "a\\b"])
def test_an_index_that_points_outside_the_folder_is_refused(write_folder: WriteFolder, shard: object) -> None:
    folder = write_folder(shards=2)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": shard}}))
    with pytest.raises(LoadError, match="no file name inside the folder"):
        open_folder(folder)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": {}}', '{"weight_map": []}', "no json"])
def test_an_index_without_a_weight_map_is_refused(write_folder: WriteFolder, content: str) -> None:
    folder = write_folder(shards=2)
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(LoadError, match=r"model\.safetensors\.index\.json"):
        open_folder(folder)


def test_a_folder_of_pickles_is_refused_saying_so(write_folder: WriteFolder) -> None:
    folder = write_folder()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(LoadError, match=r"no model\.safetensors; pytorch_model\.bin is a pickle"):
        open_checkpoint(folder)


def test_missing_and_mis_shaped_parameters_are_named(write_folder: WriteFolder) -> None:
    name = "model.layers.1.mlp.down_proj.weight"
    with pytest.raises(LoadError, match=rf"tensor {name} is missing"):
        open_checkpoint(write_folder(arrays={name: None}))
    with pytest.raises(LoadError, match=rf"model\.safetensors: {name}: has shape \[64, 95\]"):
        open_checkpoint(write_folder(arrays={name: np.zeros((64, 95), dtype=np.float32)}))


@pytest.mark.parametrize("name", ["lm_head.weight", "language_model.lm_head.weight", "model.language_model.lm_head.weight"])
def test_a_head_that_differs_from_the_embedding_is_used_though_the_configuration_ties_them(
    write_folder: WriteFolder, logged: pytest.LogCaptureFixture, name: str
) -> None:
    head = np.random.default_rng(7).standard_normal((48, 64)).astype(np.float32)
    checkpoint = open_checkpoint(write_folder({"tie_word_embeddings": True}, arrays={name: head}))
    assert not checkpoint.config.tie_embeddings
    assert np.array_equal(checkpoint.tensors["lm_head.weight"].to_float32(), head)
    assert "tie_word_embeddings is true, but" in logged.text


def test_a_head_that_differs_in_its_last_value_alone_is_used(write_folder: WriteFolder) -> None:
    embedding = np.ones((48, 64), np.float32)
    head = embedding.copy()
    head[-1, -1] = 2
    arrays = {"model.embed_tokens.weight": embedding, "lm_head.weight": head}
    assert not open_checkpoint(write_folder({"tie_word_embeddings": True}, arrays=arrays)).config.tie_embeddings


def test_a_head_that_differs_in_type_is_used(write_folder: WriteFolder) -> None:
    arrays = {"model.embed_tokens.weight": np.ones((48, 64), np.float32), "lm_head.weight": np.ones((48, 64), np.float16)}
    assert not open_checkpoint(write_folder({"tie_word_embeddings": True}, arrays=arrays)).config.tie_embeddings


def test_a_copy_of_the_embedding_stays_tied_without_a_warning(
    write_folder: WriteFolder, logged: pytest.LogCaptureFixture
) -> None:
    embedding = np.ones((48, 64), np.float32)
    arrays = {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding}
    checkpoint = open_checkpoint(write_folder({"tie_word_embeddings": True}, arrays=arrays))
    assert checkpoint.config.tie_embeddings and "lm_head.weight" not in checkpoint.tensors and not logged.records


def test_extra_tensors_of_any_dtype_are_tolerated(write_folder: WriteFolder) -> None:
    folder = write_folder(arrays={"model.layers.0.self_attn.rotary_emb.ids": np.arange(4, dtype=np.int64)})
    assert "model.layers.0.self_attn.rotary_emb.ids" not in open_checkpoint(folder).tensors


@pytest.mark.parametrize("prefix", ["language_model.", "model.language_model."])
def test_the_text_part_of_a_larger_model_is_found(write_folder: WriteFolder, prefix: str) -> None:
    config = {"tie_word_embeddings": True}
    tensors = open_checkpoint(write_folder(config)).tensors
    plain = {name: tensor.to_float32().copy() for name, tensor in tensors.items()}
    renamed: dict[str, NDArray[np.generic] | None] = dict.fromkeys(plain)
    for name, values in plain.items():
        renamed[prefix + (name.removeprefix("model.") if prefix.startswith("model.") else name)] = values
    found = open_checkpoint(write_folder(config, arrays=renamed)).tensors
    assert all(np.array_equal(found[name].to_float32(), values) for name, values in plain.items())
