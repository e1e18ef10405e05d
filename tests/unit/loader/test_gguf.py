"""The GGUF reader: what it reads from good files and what it says about bad ones."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from octavo.errors import LoadError
from octavo.loader.gguf import GgufFile, open_gguf

WriteGguf = Callable[..., Path]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(*, version: int = 3, tensors: bytes = b"", num_tensors: int = 0, keys: bytes = b"", num_keys: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_keys) + keys + tensors + b"\0" * 64


def tensor_info(name: str, dimensions: list[int], type_id: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, type_id, offset)


def refused(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(LoadError) as caught:
        GgufFile(path)
    assert "bad.gguf" in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value.message


def test_every_metadata_type_is_read(tmp_path: Path) -> None:
    path = tmp_path / "types.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -3)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -300)
    writer.add_uint32("u32", 4_000_000_000)
    writer.add_int32("i32", -5)
    writer.add_uint64("u64", 1 << 60)
    writer.add_int64("i64", -(1 << 60))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("flag", True)
    writer.add_string("text", "é世界")
    writer.add_array("texts", ["a", "", "世"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("floats", [0.5, 1.5])
    writer.add_array("flags", [True, False])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = GgufFile(path).metadata
    assert metadata["u8"] == 200 and metadata["i8"] == -3 and metadata["u16"] == 60000 and metadata["i16"] == -300
    assert metadata["u32"] == 4_000_000_000 and metadata["i32"] == -5
    assert metadata["u64"] == 1 << 60 and metadata["i64"] == -(1 << 60)
    assert metadata["f32"] == 0.5 and metadata["f64"] == 0.1 and metadata["flag"] is True
    assert metadata["text"] == "é世界" and metadata["texts"] == ["a", "", "世"]
    assert metadata["numbers"] == [1, -2, 3] and metadata["floats"] == [0.5, 1.5] and metadata["flags"] == [True, False]


@pytest.mark.parametrize("quantised", ["Q4_1", "Q8_0", "F16", "F32"])
def test_tensors_equal_what_the_gguf_package_reads(write_gguf: WriteGguf, quantised: str) -> None:
    path = write_gguf(quantised=gguf.GGMLQuantizationType[quantised])
    ours, theirs = GgufFile(path).tensors, gguf.GGUFReader(path).tensors
    assert list(ours) == [tensor.name for tensor in theirs]
    for tensor in theirs:
        mine = ours[tensor.name]
        assert mine.shape == tuple(int(extent) for extent in reversed(tensor.shape))
        assert mine.format == tensor.tensor_type.name.lower()
        assert np.array_equal(mine.data.ravel(), tensor.data.reshape(-1).view(np.uint8))


def test_a_header_with_a_large_vocabulary_is_read_quickly(smollm2_gguf: Path, gemma3_gguf: Path) -> None:
    for path, tokens, limit_s in ((smollm2_gguf, 49152, 0.1), (gemma3_gguf, 262144, 0.4)):
        durations = []  # CPU seconds: other processes do not count
        for _ in range(3):
            start = time.thread_time()
            metadata = GgufFile(path).metadata
            durations.append(time.thread_time() - start)
        vocabulary = metadata["tokenizer.ggml.tokens"]
        assert isinstance(vocabulary, list) and len(vocabulary) == tokens
        assert min(durations) < limit_s


def test_large_arrays_can_be_left_out(smollm2_gguf: Path) -> None:
    file = GgufFile(smollm2_gguf, skip_large_arrays=True)
    assert "tokenizer.ggml.tokens" not in file.metadata and "tokenizer.ggml.token_type" not in file.metadata
    assert file.metadata["general.languages"] == ["en"]
    assert file.tensors.keys() == GgufFile(smollm2_gguf).tensors.keys()


def test_wrong_magic_is_refused(tmp_path: Path) -> None:
    assert "not a GGUF file" in refused(tmp_path, b"GGML" + b"\0" * 64)


@pytest.mark.parametrize("version", [0, 1, 4])
def test_an_unknown_version_is_refused(tmp_path: Path, version: int) -> None:
    assert f"version {version}" in refused(tmp_path, header(version=version))


def test_a_big_endian_file_is_refused(tmp_path: Path) -> None:
    assert "big-endian" in refused(tmp_path, b"GGUF" + struct.pack(">IQQ", 3, 0, 0))


@pytest.mark.parametrize(("num_tensors", "num_keys"), [(1 << 62, 0), (0, 1 << 62), (1 << 40, 1 << 40)])
def test_absurd_counts_are_refused_before_anything_is_read(tmp_path: Path, num_tensors: int, num_keys: int) -> None:
    assert "claims" in refused(tmp_path, header(num_tensors=num_tensors, num_keys=num_keys))


def test_an_absurd_string_length_is_refused_naming_the_key(tmp_path: Path) -> None:
    keys = text("general.name") + struct.pack("<IQ", 8, 1 << 50)
    assert "general.name" in refused(tmp_path, header(keys=keys, num_keys=1))


@pytest.mark.parametrize(("item_type", "count"), [(8, 1 << 22), (4, 1 << 22), (4, 1 << 60), (8, 1 << 60)])
def test_an_absurd_array_length_is_refused_naming_the_key(tmp_path: Path, item_type: int, count: int) -> None:
    keys = text("tokens") + struct.pack("<IIQ", 9, item_type, count)
    assert "tokens" in refused(tmp_path, header(keys=keys, num_keys=1))


def test_a_damaged_string_inside_an_array_is_refused_naming_the_entry(tmp_path: Path) -> None:
    keys = text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("good") + struct.pack("<Q", 1 << 63)
    assert "'tokens', entry 1" in refused(tmp_path, header(keys=keys, num_keys=1))


def test_unknown_and_nested_value_types_are_refused(tmp_path: Path) -> None:
    assert "unknown value type 13" in refused(tmp_path, header(keys=text("k") + struct.pack("<IQ", 13, 0), num_keys=1))
    nested = text("k") + struct.pack("<IIQ", 9, 9, 1)
    assert "unsupported type 9" in refused(tmp_path, header(keys=nested, num_keys=1))


def test_a_key_or_tensor_that_appears_twice_is_refused(tmp_path: Path) -> None:
    key = text("general.name") + struct.pack("<II", 4, 1)
    assert "appears twice" in refused(tmp_path, header(keys=key * 2, num_keys=2))
    info = tensor_info("w", [4])
    assert "'w' appears twice" in refused(tmp_path, header(tensors=info * 2, num_tensors=2))


def test_a_key_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    keys = struct.pack("<Q", 2) + b"\xff\xfe" + struct.pack("<IQ", 8, 0)
    assert "not valid UTF-8" in refused(tmp_path, header(keys=keys, num_keys=1))


@pytest.mark.parametrize("alignment", [0, 3, 4, 48, 1 << 30])
def test_a_bad_alignment_is_refused(tmp_path: Path, alignment: int) -> None:
    keys = text("general.alignment") + struct.pack("<II", 4, alignment)
    assert "general.alignment" in refused(tmp_path, header(keys=keys, num_keys=1))


@pytest.mark.parametrize(
    ("dimensions", "offset", "expected"),
    [
        ([1 << 20], 0, "truncated or damaged"),
        ([4], 1 << 40, "truncated or damaged"),
        ([4], 4, "no multiple of 32"),
        ([], 0, "0 dimensions"),
        ([2] * 5, 0, "5 dimensions"),
        ([0], 0, "impossible shape"),
        ([1 << 62, 1 << 62], 0, "impossible shape"),
        ([1 << 39, 1 << 39], 0, "truncated or damaged"),
    ],
)
def test_a_tensor_outside_the_file_is_refused_by_name(
    tmp_path: Path, dimensions: list[int], offset: int, expected: str
) -> None:
    message = refused(tmp_path, header(tensors=tensor_info("blk.0.w", dimensions, 0, offset), num_tensors=1))
    assert "blk.0.w" in message and expected in message


@pytest.mark.parametrize(("type_id", "name"), [(16, "iq2_xxs"), (39, "mxfp4"), (4, "number 4"), (9999, "number 9999")])
def test_an_unsupported_tensor_type_is_refused_listing_the_supported(tmp_path: Path, type_id: int, name: str) -> None:
    message = refused(tmp_path, header(tensors=tensor_info("blk.0.w", [256], type_id), num_tensors=1))
    assert "blk.0.w" in message and name in message and "q4_k" in message


def test_a_row_of_no_whole_blocks_is_refused(tmp_path: Path) -> None:
    message = refused(tmp_path, header(tensors=tensor_info("blk.0.w", [255], 12), num_tensors=1))
    assert "blk.0.w" in message and "blocks of 256" in message


def test_a_file_truncated_anywhere_is_refused(write_gguf: WriteGguf, tmp_path: Path) -> None:
    whole = write_gguf()
    content = whole.read_bytes()
    file = GgufFile(whole)
    end = max(tensor.data.ctypes.data + tensor.data.nbytes for tensor in file.tensors.values()) - file.mapped.data.ctypes.data
    cut = tmp_path / "cut.gguf"
    for length in [*range(0, file.header_bytes, 17), *range(file.header_bytes, end, 4999), end - 1]:
        cut.write_bytes(content[:length])
        with pytest.raises(LoadError, match=r"cut\.gguf"):
            GgufFile(cut)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no such file"):
        GgufFile(tmp_path / "absent.gguf")
    with pytest.raises(LoadError, match="is a folder"):
        GgufFile(tmp_path)


def test_all_shards_of_a_split_file_are_opened(write_gguf: WriteGguf) -> None:
    for number in range(2):
        keys = {"split.no": number, "split.count": 2}
        path = write_gguf(name=f"big-{number + 1:05d}-of-00002.gguf", keys=keys)
    assert [file.path.name for file in open_gguf(path)] == ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]


def test_a_missing_shard_is_named(write_gguf: WriteGguf) -> None:
    path = write_gguf(name="big-00001-of-00003.gguf", keys={"split.no": 0, "split.count": 3})
    with pytest.raises(LoadError, match=r"missing 2 of 3 shards: big-00002-of-00003\.gguf, big-00003-of-00003\.gguf"):
        open_gguf(path)


def test_a_shard_under_another_name_is_refused(write_gguf: WriteGguf) -> None:
    with pytest.raises(LoadError, match="one of 3 shards"):
        open_gguf(write_gguf(name="renamed.gguf", keys={"split.count": 3}))
