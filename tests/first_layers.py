"""A GGUF file's first layers as a file of its own: the real kernels, shapes and tokenizer at a fraction of the work.

What a scheduler, a cache or a thread does wrong shows in any layer. The weights are those of the whole file, byte by byte.
"""

from __future__ import annotations

import struct
from pathlib import Path

from octavo.loader.gguf import GgufFile, GgufTensor

ALIGNMENT = 32


def write(source: Path, target: Path, num_layers: int) -> Path:
    """Write the first num_layers layers of source, and all that is no layer, to target; returns it."""
    file = GgufFile(source, skip_large_arrays=True)
    assert "general.alignment" not in file.metadata
    with open(source, "rb") as stream:
        head = stream.read(file.header_bytes)
    entries, end = {}, len(head)
    for tensor in reversed(file.tensors.values()):
        start = end - _entry_bytes(tensor)
        entries[tensor.name], end = head[start:end], start
    kept = [tensor for tensor in file.tensors.values() if _layer(tensor) < num_layers]
    assert len(kept) < len(entries)
    key = f"{file.metadata['general.architecture']}.block_count".encode() + struct.pack("<I", 4)
    before, _, behind = head[16:end].partition(key)
    head = head[:8] + struct.pack("<Q", len(kept)) + before + key + struct.pack("<I", num_layers) + behind[4:]
    offset = 0
    for tensor in kept:
        head += entries[tensor.name][:-8] + struct.pack("<Q", offset)  # an entry ends with the place of the tensor's data
        offset += len(_padded(tensor.data.tobytes()))
    with open(target, "wb") as out:
        out.write(_padded(head))
        for tensor in kept:
            out.write(_padded(tensor.data.tobytes()))
    return target


def _layer(tensor: GgufTensor) -> int:
    parts = tensor.name.split(".")
    return int(parts[1]) if parts[0] == "blk" else -1


def _entry_bytes(tensor: GgufTensor) -> int:
    """Of its entry in the header: name with its length, number of dimensions, dimensions, type, offset."""
    return 8 + len(tensor.name.encode()) + 4 + 8 * len(tensor.shape) + 4 + 8


def _padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % ALIGNMENT)
