"""SafetensorsFile: one .safetensors file, tensors through a memory map; and the set of files of a Hugging Face folder.

Layout: header length u64 | JSON header {name: {dtype, shape, data_offsets}} | data. Offsets count from the end of the header.
Source: the format section of the safetensors README.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from octavo.errors import LoadError
from octavo.loader.fields import parse_json_object, read_json_object, shown
from octavo.loader.mapped_file import MappedFile, map_file, open_file
from octavo.loader.stored import StoredRows

MAX_HEADER_BYTES = 100_000_000
"""The limit of the reference implementation."""
FORMATS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
_ITEM_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip
_COMPARED_BYTES = 8 << 20
INDEX_NAME, SINGLE_NAME = "model.safetensors.index.json", "model.safetensors"


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor's place: dtype as the header names it, bytes start..stop of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsFile:
    """One parsed file: `entries` by name, `header_bytes` up to the data, `header_sha256` of those.

    Tensors of any dtype may be listed; only F32, F16 and BF16 can be taken.

    Raises: LoadError naming file and tensor for anything that is not a whole, valid file.
    """

    path: Path
    mapped: MappedFile
    entries: dict[str, Entry]
    header_bytes: int
    header_sha256: bytes

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_file(path) as file:
            size = file.size_bytes
            if size < 8:
                raise LoadError(f"{path}: {size} bytes are too few for a safetensors file")
            start = file.read(0, 8)
            (length,) = struct.unpack("<Q", start)
            if length > min(MAX_HEADER_BYTES, size - 8):
                raise LoadError(
                    f"{path}: claims a header of {length} bytes, but the file has {size} (limit {MAX_HEADER_BYTES}); "
                    "it is truncated or not a safetensors file"
                )
            raw = file.read(8, length)
            self.mapped = map_file(file)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise LoadError(f"{path}: the header is not valid UTF-8") from None
        self.header_bytes = 8 + length
        self.header_sha256 = hashlib.sha256(start + raw).digest()
        header = parse_json_object(text, f"{path}: header")
        self.entries = {name: self._entry(name, value) for name, value in header.items() if name != "__metadata__"}

    def _entry(self, name: str, value: object) -> Entry:
        """Check one header entry against the file."""
        if not isinstance(value, dict):
            raise LoadError(f"{self.path}: tensor {name}: malformed header entry")
        dtype, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
        if not isinstance(dtype, str) or not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
            raise LoadError(f"{self.path}: tensor {name}: malformed dtype, shape or data_offsets in the header")
        start, stop = (self.header_bytes + offset for offset in offsets)
        if not start <= stop <= self.mapped.size_bytes:
            raise LoadError(
                f"{self.path}: tensor {name} needs bytes {start} to {stop}, but the file ends at {self.mapped.size_bytes}; "
                "it is truncated or damaged"
            )
        if dtype in _ITEM_BYTES:
            expected = _ITEM_BYTES[dtype]
            for extent in shape:
                expected *= extent
            if expected != stop - start:
                raise LoadError(
                    f"{self.path}: tensor {name}: {dtype} of shape {shape} takes {expected} bytes, not {stop - start}"
                )
        return Entry(dtype, tuple(shape), start, stop)

    def tensor(self, name: str, parameter: str) -> StoredRows:
        """The tensor `name` of the file under the parameter's name. Raises: LoadError for a dtype that is not supported."""
        entry = self.entries[name]
        source = f"{self.path.name}: {name}"
        format = FORMATS.get(entry.dtype)
        if format is None:
            raise LoadError(f"{source}: dtype {entry.dtype} is not supported; supported: {', '.join(FORMATS)}")
        raw = self.mapped.data[entry.start : entry.stop]
        if raw.size == 0 or not entry.shape:
            raise LoadError(f"{source}: the tensor is empty or a scalar, of shape {entry.shape}")
        rows = 1 if len(entry.shape) == 1 else raw.size // (entry.shape[-1] * _ITEM_BYTES[entry.dtype])
        return StoredRows(parameter, entry.shape, format, raw.reshape(rows, -1), None, source)

    def array(self, name: str, dtype: type) -> NDArray[np.generic]:
        """The tensor `name` as an array of numpy's dtype, which must be what the header says, in its shape; a copy."""
        entry = self.entries[name]
        raw = self.mapped.data[entry.start : entry.stop]
        return np.frombuffer(raw.tobytes(), dtype).reshape(entry.shape)


def have_equal_bytes(first: StoredRows, second: StoredRows) -> bool:
    """Whether two tensors of one format and shape hold the same bytes; reads until they differ."""
    step = max(1, _COMPARED_BYTES // max(1, first.data.shape[1]))
    return all(
        np.array_equal(first.data[row : row + step], second.data[row : row + step]) for row in range(0, len(first.data), step)
    )


def _are_counts(value: object) -> TypeGuard[list[int]]:
    """True for a short list of non-negative integers."""
    return (
        isinstance(value, list)
        and len(value) <= 8
        and all(isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 1 << 62 for item in value)
    )


def open_folder(folder: Path) -> dict[str, SafetensorsFile]:
    """Tensor name -> the file that holds it, for a folder with a single model.safetensors or an index of shards.

    Raises: LoadError naming missing shards.
    """
    if (folder / SINGLE_NAME).is_file():  # before an index, which may be of another upload: as transformers
        file = SafetensorsFile(folder / SINGLE_NAME)
        return dict.fromkeys(file.entries, file)
    if (folder / INDEX_NAME).is_file():
        return _open_sharded(folder)
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        file = SafetensorsFile(found[0])
        return dict.fromkeys(file.entries, file)
    if found:
        raise LoadError(f"{folder}: {len(found)} .safetensors files, but no {INDEX_NAME} that says how they belong together")
    others = [path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in sorted(folder.glob(pattern))]
    hint = f"; {others[0]} is a pickle, which octavo never opens: convert it" if others else ""
    raise LoadError(f"{folder}: no {SINGLE_NAME}{hint}")


def _open_sharded(folder: Path) -> dict[str, SafetensorsFile]:
    index = folder / INDEX_NAME
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise LoadError(f"{index}: weight_map is missing or empty")
    shards = sorted({shard for shard in weight_map.values() if isinstance(shard, str)})
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or shard in ("", ".", "..") or Path(shard).name != shard or "\\" in shard:
            raise LoadError(f"{index}: tensor {name}: {shown(shard)} is no file name inside the folder")
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise LoadError(f"{folder}: missing {len(missing)} of {len(shards)} shards: {', '.join(missing[:3])}{more}")
    # What the shards hold counts, as in transformers; where two hold a name, the index decides.
    files = {shard: SafetensorsFile(folder / shard) for shard in shards}
    found = {name: file for file in files.values() for name in file.entries}
    return found | {name: files[shard] for name, shard in weight_map.items() if name in files[shard].entries}
