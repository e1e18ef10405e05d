"""Damaged folders of AWQ, GPTQ, compressed-tensors and float8: each a function of a seed. The damage is done where codes are
described: quantization_config, the header, the arrays' shapes and dtypes, lists of groups."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from tests import quantised_folders as pack
from tests.fuzz.mutations import NUMBERS, ODD, damage_bytes, damage_json, folder_files, tensors

CONFIGS: dict[str, dict[str, Any]] = {
    "awq": {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 16, "modules_to_not_convert": ["lm_head"]},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True, "sym": False},
    "packed": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 16}}},
        "ignore": ["lm_head"],
    },
    "float8": {"quant_method": "fp8", "weight_block_size": [16, 16]},
}
KINDS = tuple(CONFIGS)
_COLUMNS = 32
"""Matrices of other widths stay plain."""


def arrays_of(kind: str, rng: np.random.Generator, rows: int) -> dict[str, pack.Array]:
    """A random matrix [rows, 32] as a folder of that kind keeps it."""
    codes, zeros = rng.integers(0, 16, (rows, _COLUMNS)), rng.integers(0, 16, (rows, 2))
    scales = rng.uniform(0.01, 0.1, (rows, 2)).astype(np.float32)
    if kind == "awq":
        return pack.awq(codes, zeros, scales)
    if kind == "packed":
        return pack.packed(codes, zeros, scales, 4)
    if kind == "gptq":
        arrays = pack.gptq(codes, zeros, scales, 4, True)
        return {**arrays, "g_idx": np.random.default_rng(1).permutation(arrays["g_idx"])}
    values = rng.standard_normal((rows, _COLUMNS)).astype(ml_dtypes.float8_e4m3fn)
    return {"weight": values.view(np.uint8), "weight_scale_inv": rng.uniform(0.1, 1, (-(-rows // 16), 2)).astype(np.float32)}


def coded_tensors(kind: str) -> dict[str, pack.Array]:
    rng = np.random.default_rng(5)
    found: dict[str, pack.Array] = {}
    for name, values in tensors(False).items():
        if "_proj" in name and values.shape[1] == _COLUMNS:
            stem = name.removesuffix(".weight")
            found |= {f"{stem}.{end}": array for end, array in arrays_of(kind, rng, values.shape[0]).items()}
        else:
            found[name] = values
    return found


def damage_array(found: dict[str, pack.Array], rng: random.Random) -> None:
    """One array of a matrix dropped, cut, turned, of another dtype, or with odd numbers in it."""
    name = rng.choice([name for name in found if "_proj" in name])
    array = found[name]
    what = rng.choice(["drop", "cut", "turn", "flat", "deep", "empty", "dtype", "numbers"])
    if what == "drop":
        del found[name]
    elif what == "cut":
        found[name] = array[: len(array) // 2].copy()
    elif what == "turn":
        found[name] = np.ascontiguousarray(array.T)
    elif what == "flat":
        found[name] = array.reshape(-1)
    elif what == "deep":
        found[name] = array[None]
    elif what == "empty":
        found[name] = array[:0].copy()
    elif what == "dtype":
        found[name] = array.astype(rng.choice([np.int32, np.int64, np.int8, np.float16, np.float32]))
    else:
        flat = array.reshape(-1).copy()
        odd = [number for number in NUMBERS if abs(number) <= np.iinfo(np.int64).max]
        for _ in range(3):
            with np.errstate(all="ignore"):
                flat[rng.randrange(flat.size)] = np.array(rng.choice(odd)).astype(flat.dtype)
        found[name] = flat.reshape(array.shape)


def write_coded_folder(folder: Path, seed: int) -> None:
    """A damaged folder; one in eight is whole."""
    rng = random.Random(f"coded {seed}")
    kind = KINDS[seed % len(KINDS)]
    files, found = folder_files(), coded_tensors(kind)
    config = {**files["config.json"], "quantization_config": CONFIGS[kind]}
    place = seed // len(KINDS) % 8
    if place in (1, 2):
        config["quantization_config"] = damage_json(config["quantization_config"], rng, [*NUMBERS, *ODD])
    if place in (3, 4, 5):
        damage_array(found, rng)
    pack.write(folder, json.loads(json.dumps(config)), found)
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text(json.dumps(files[name]))
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    if place == 6:
        header = json.dumps(damage_json(json.loads(whole[8 : 8 + length]), rng, [*NUMBERS, *ODD]), default=str).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + whole[8 + length :])
    elif place == 7:
        path.write_bytes(damage_bytes(whole, rng, length + 8 if rng.random() < 0.5 else len(whole)))
