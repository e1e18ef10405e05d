"""GgufFile: metadata and tensors of one GGUF file (versions 2 and 3, little-endian); tensors through a memory map.

Layout: magic "GGUF" | version u32 | tensor count u64 | key count u64 | keys and values | tensor infos | padding to the
alignment | tensor data. Strings are a u64 length and UTF-8 bytes. Every count and length is checked against the bytes that are
left before anything is allocated, so a damaged or hostile file costs no more memory than its own size.
Source: docs/gguf.md of the ggml repository.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from octavo.errors import LoadError
from octavo.loader.fields import shown
from octavo.loader.formats import KNOWN_FORMATS, bytes_per_row
from octavo.loader.mapped_file import MappedFile, OpenFile, map_file, open_file

MetadataValue = int | float | bool | str | list[int] | list[float] | list[bool] | list[str]

MAX_KEY_BYTES = 65535
MAX_STRING_BYTES = 16 << 20
MAX_ENTRIES = 1 << 23
"""Entries of all arrays together; each becomes a Python object of some 50 bytes."""
MAX_HEADER_BYTES = 256 << 20
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 1 << 20
FIRST_READ_BYTES = 16 << 20
"""Nearly every header is shorter; a longer one is read again, twice as far."""
LARGE_ARRAY_LENGTH = 1024
"""Arrays longer than this hold a vocabulary; they are left out when only weights are wanted."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_TENSOR_TYPES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 9: "q8_1", 10: "q2_k", 11: "q3_k", 12: "q4_k",
    13: "q5_k", 14: "q6_k", 15: "q8_k", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl", 21: "iq3_s",
    22: "iq2_s", 23: "iq4_xs", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 29: "iq1_m", 30: "bf16", 34: "tq1_0",
    35: "tq2_0", 39: "mxfp4",
}  # fmt: skip
_SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True, eq=False)
class GgufTensor:
    """One tensor as stored. `shape` is in row-major order (GGUF lists dimensions the other way round); `data` is a uint8 view
    [rows, bytes_per_row] of the map, [1, n] for a vector; `source` is "file: name" for error messages."""

    name: str
    shape: tuple[int, ...]
    format: str
    data: NDArray[np.uint8]
    source: str


class GgufFile:
    """One parsed file.

    metadata       key -> value; arrays are lists. With skip_large_arrays, arrays of more than LARGE_ARRAY_LENGTH entries (the
                   vocabulary) are walked over but left out.
    tensors        name -> GgufTensor, in file order
    header_bytes   length of everything before the tensor data
    header_sha256  its checksum

    Raises: LoadError naming the file and the key or tensor, for anything that is not a whole, valid file.
    """

    path: Path
    version: int
    metadata: dict[str, MetadataValue]
    tensors: dict[str, GgufTensor]
    mapped: MappedFile
    header_bytes: int
    header_sha256: bytes

    def __init__(self, path: Path, *, skip_large_arrays: bool = False) -> None:
        self.path = path
        with open_file(path) as file:
            infos = self._read_header(file, skip_large_arrays)
            self.mapped = map_file(file)
        alignment = self._alignment()
        data_start = -(-self.header_bytes // alignment) * alignment
        self.tensors = {info.name: self._tensor(info, data_start, alignment) for info in infos}

    def _read_header(self, file: OpenFile, skip_large_arrays: bool) -> list[_TensorInfo]:
        length = min(file.size_bytes, FIRST_READ_BYTES)
        while True:
            head = file.read(0, length)
            cursor = _Cursor(file, head)
            self.metadata = {}
            try:
                self.version, num_tensors, num_keys = _read_preamble(cursor)
                for _ in range(num_keys):
                    _read_key_value(cursor, self.metadata, skip_large_arrays)
                infos = _read_tensor_infos(cursor, num_tensors)
            except _HeadTooShort:
                if length >= MAX_HEADER_BYTES:
                    raise LoadError(f"{self.path}: the header is longer than the limit of {MAX_HEADER_BYTES} bytes") from None
                length = min(file.size_bytes, 2 * length)
                continue
            self.header_bytes = cursor.position
            self.header_sha256 = hashlib.sha256(memoryview(head)[: cursor.position]).digest()
            return infos

    def _alignment(self) -> int:
        alignment = self.metadata.get("general.alignment", 32)
        if isinstance(alignment, int) and 8 <= alignment <= MAX_ALIGNMENT and alignment & (alignment - 1) == 0:
            return alignment
        raise LoadError(f"{self.path}: general.alignment is {shown(alignment)}, expected a power of two, 8 to {MAX_ALIGNMENT}")

    def _tensor(self, info: _TensorInfo, data_start: int, alignment: int) -> GgufTensor:
        """Cut one tensor's bytes out of the map after checking that they lie inside it."""
        source = f"{self.path.name}: {info.name}"
        format = _TENSOR_TYPES.get(info.type_id, f"number {info.type_id}")
        if format not in KNOWN_FORMATS:
            raise LoadError(
                f"{self.path}: tensor {info.name} has the unsupported type {format}; supported: {', '.join(KNOWN_FORMATS)}"
            )
        rows = 1
        for extent in info.shape[:-1]:
            rows *= extent
        try:
            row_bytes = bytes_per_row(format, info.shape[-1])
        except LoadError as error:
            raise LoadError(f"{self.path}: tensor {info.name}: {error.message}") from None
        start, size = data_start + info.offset, rows * row_bytes
        if info.offset % alignment:
            raise LoadError(f"{self.path}: tensor {info.name} starts at offset {info.offset}, no multiple of {alignment}")
        if start + size > self.mapped.size_bytes:
            raise LoadError(
                f"{self.path}: tensor {info.name} needs bytes {start} to {start + size}, but the file ends at "
                f"{self.mapped.size_bytes}; it is truncated or damaged"
            )
        return GgufTensor(
            info.name, info.shape, format, self.mapped.data[start : start + size].reshape(rows, row_bytes), source
        )


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


class _HeadTooShort(Exception):
    """The header goes on behind the bytes that were read."""


class _Cursor:
    """A reading position in the head of a file; every read checks its end first, and the end of the file."""

    __slots__ = ("_buffer", "_end", "_path", "_size_bytes", "num_entries", "position")

    def __init__(self, file: OpenFile, head: bytes) -> None:
        self._buffer = head
        self._end = len(head)
        self._size_bytes = file.size_bytes
        self._path = file.path
        self.position = 0
        self.num_entries = 0

    def error(self, message: str) -> LoadError:
        return LoadError(f"{self._path}: {message}")

    def need(self, size: int, what: str) -> None:
        """Raise unless `size` more bytes exist, and were read."""
        if size > self._size_bytes - self.position:
            raise self.error(
                f"truncated or damaged in {what} (needs {size} bytes at {self.position}, file has {self._size_bytes})"
            )
        if size > self._end - self.position:
            raise _HeadTooShort

    def damaged(self, what: str, end: int) -> Exception:
        """What to raise for an entry that would end at `end`, which is not among the bytes that were read."""
        if self._end < end <= self._size_bytes:
            return _HeadTooShort()
        return self.error(f"truncated or damaged in {what}")

    def scalar(self, code: str, what: str) -> int | float | bool:
        layout = struct.Struct("<" + code)
        self.need(layout.size, what)
        value: int | float | bool = layout.unpack_from(self._buffer, self.position)[0]
        self.position += layout.size
        return value

    def integer(self, code: str, what: str) -> int:
        return int(self.scalar(code, what))

    def name(self, what: str) -> str:
        """A key or the name of a tensor."""
        raw = self._text_bytes(what, MAX_KEY_BYTES)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.error(f"{what} is not valid UTF-8") from None

    def text(self, what: str) -> str:
        """A value. Bytes that are not UTF-8 become U+FFFD: most texts are never used, and llama.cpp takes any bytes."""
        return self._text_bytes(what, MAX_STRING_BYTES).decode(errors="replace")

    def _text_bytes(self, what: str, limit: int) -> bytes:
        length = self.integer("Q", what)
        if length > limit:
            raise self.error(f"{what} claims {length} bytes of text, more than the limit of {limit}")
        self.need(length, what)
        raw = self._buffer[self.position : self.position + length]
        self.position += length
        return raw

    def numbers(self, code: str, count: int, what: str) -> list[int] | list[float] | list[bool]:
        """An array of fixed-size numbers."""
        dtype = np.dtype("<" + code)
        self.need(count * dtype.itemsize, what)
        values = np.frombuffer(self._buffer, dtype, count, self.position)
        self.position += count * dtype.itemsize
        items: list[int] | list[float] | list[bool] = values.tolist()
        return items

    def texts(self, count: int, what: str) -> list[str]:
        """An array of strings. The loop is the hot part of opening a file: 262,144 tokens in about 0.1 s."""
        self.need(count * 8, what)
        buffer, position, end = self._buffer, self.position, self._end
        unpack_from = struct.Struct("<Q").unpack_from
        values: list[str] = []
        append = values.append
        try:
            for _ in range(count):
                first = position + 8
                position = first + unpack_from(buffer, position)[0]
                if position > end:
                    raise self.damaged(f"{what}, entry {len(values)}", position)
                append(buffer[first:position].decode(errors="replace"))
        except struct.error:
            raise self.damaged(f"{what}, entry {len(values)}", position + 8) from None
        self.position = position
        return values

    def skip_texts(self, count: int, what: str) -> None:
        """Walk over an array of strings."""
        self.need(count * 8, what)
        unpack_from = struct.Struct("<Q").unpack_from
        buffer, position, end = self._buffer, self.position, self._end
        for index in range(count):
            if position + 8 > end:
                raise self.damaged(f"{what}, entry {index}", position + 8)
            position += 8 + unpack_from(buffer, position)[0]
        if position > end:
            raise self.damaged(f"{what}, entry {count - 1}", position)
        self.position = position


def _read_preamble(cursor: _Cursor) -> tuple[int, int, int]:
    """Version, tensor count and key count."""
    magic = cursor.integer("I", "the magic number")
    if magic != 0x46554747:  # "GGUF"
        raise cursor.error(f"not a GGUF file: it starts with {magic.to_bytes(4, 'little')!r} instead of b'GGUF'")
    version = cursor.integer("I", "the version")
    if version and version & 0xFFFF == 0:
        raise cursor.error("a big-endian GGUF file; octavo reads little-endian files only")
    if version not in (2, 3):
        raise cursor.error(f"GGUF version {version} is not supported; known versions are 2 and 3")
    num_tensors = cursor.integer("Q", "the tensor count")
    num_keys = cursor.integer("Q", "the key count")
    # The smallest key and value take 13 bytes, the smallest tensor info 32.
    cursor.need(num_keys * 13 + num_tensors * 32, f"the header, which claims {num_keys} keys and {num_tensors} tensors")
    return version, num_tensors, num_keys


def _read_key_value(cursor: _Cursor, metadata: dict[str, MetadataValue], skip_large_arrays: bool) -> None:
    """Read one key and its value into metadata."""
    key = cursor.name(f"key number {len(metadata)}")
    what = f"key {shown(key)}"
    if key in metadata:
        raise cursor.error(f"{what} appears twice")
    type_id = cursor.integer("I", what)
    if type_id == _STRING:
        metadata[key] = cursor.text(what)
        return
    if type_id != _ARRAY:
        if type_id not in _SCALARS:
            raise cursor.error(f"{what} has the unknown value type {type_id}")
        metadata[key] = cursor.scalar(_SCALARS[type_id], what)
        return
    item_type = cursor.integer("I", what)
    count = cursor.integer("Q", what)
    if item_type != _STRING and item_type not in _SCALARS:
        raise cursor.error(f"{what} is an array of the unsupported type {item_type}")
    cursor.num_entries += count
    if cursor.num_entries > MAX_ENTRIES:
        raise cursor.error(f"{what} claims {count} entries; all arrays together may have {MAX_ENTRIES}")
    skip = skip_large_arrays and count > LARGE_ARRAY_LENGTH
    if item_type == _STRING:
        if skip:
            cursor.skip_texts(count, what)
        else:
            metadata[key] = cursor.texts(count, what)
        return
    values = cursor.numbers(_SCALARS[item_type], count, what)
    if not skip:
        metadata[key] = values


def _read_tensor_infos(cursor: _Cursor, num_tensors: int) -> list[_TensorInfo]:
    """Names, shapes, types and offsets; data is not touched."""
    infos: dict[str, _TensorInfo] = {}
    for index in range(num_tensors):
        name = cursor.name(f"tensor number {index}")
        what = f"tensor {shown(name)}"
        if name in infos:
            raise cursor.error(f"{what} appears twice")
        num_dimensions = cursor.integer("I", what)
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            raise cursor.error(f"{what} has {num_dimensions} dimensions, expected 1 to {MAX_DIMENSIONS}")
        dimensions = [cursor.integer("Q", what) for _ in range(num_dimensions)]
        if any(not 0 < extent < 1 << 40 for extent in dimensions):
            raise cursor.error(f"{what} has the impossible shape {dimensions}")
        type_id = cursor.integer("I", what)
        offset = cursor.integer("Q", what)
        infos[name] = _TensorInfo(name, tuple(reversed(dimensions)), type_id, offset)
    return list(infos.values())


def open_gguf(path: Path, *, skip_large_arrays: bool = False) -> list[GgufFile]:
    """The file, or all shards of a split one in order (name any shard); metadata of the model is in the first.

    Raises: LoadError as GgufFile does, or naming the shards that are missing.
    """
    match = _SHARD_NAME.fullmatch(path.name)
    if match is None:
        file = GgufFile(path, skip_large_arrays=skip_large_arrays)
        count = file.metadata.get("split.count", 1)
        if isinstance(count, int) and count > 1:
            raise LoadError(f"{path}: one of {count} shards, but not named like NAME-00001-of-{count:05d}.gguf")
        return [file]
    count = int(match["count"])
    paths = [path.with_name(f"{match['stem']}-{number:05d}-of-{match['count']}.gguf") for number in range(1, count + 1)]
    missing = [shard.name for shard in paths if not shard.is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise LoadError(f"{path}: missing {len(missing)} of {count} shards: {', '.join(missing[:3])}{more}")
    files = [GgufFile(shard, skip_large_arrays=skip_large_arrays) for shard in paths]
    for number, file in enumerate(files):
        if file.metadata.get("split.no") != number or file.metadata.get("split.count") != count:
            raise LoadError(f"{file.path}: its header does not say it is shard {number + 1} of {count}")
    return files
