"""Folders of AWQ, GPTQ, compressed-tensors and FP8: the values of their packed matrices, to the bit, and the model that runs on
them."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests import quantised_folders as pack
from tests.checkpoints import open_checkpoint
from tests.models.runner import Runner
from tests.tiny_models import VARIANTS, prompt, tiny_tensors

from octavo.config.loading import LoadingConfig
from octavo.config.resolve import check_method
from octavo.errors import ConfigError, LoadError
from octavo.loader.checkpoint import open_config
from octavo.loader.formats import evaluate

GOLDEN = Path(__file__).parent.parent / "golden" / "models"
Array = pack.Array
CONFIG = VARIANTS["llama-gqa"].config
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def grid(shape: tuple[int, int], bits: int, group: int, symmetric: bool, seed: int) -> tuple[Array, Array, Array, Array]:
    """Random codes, zero points, scales (float16 values) and the values that they stand for."""
    rng = np.random.default_rng(seed)
    groups = shape[1] // group
    codes = rng.integers(0, 1 << bits, shape)
    zeros = np.full((shape[0], groups), 1 << (bits - 1)) if symmetric else rng.integers(0, 1 << bits, (shape[0], groups))
    scales = (rng.uniform(0.5, 1.5, zeros.shape) / (1 << bits)).astype(np.float16).astype(np.float32)
    values = np.repeat(scales, group, 1) * (codes - np.repeat(zeros, group, 1)).astype(np.float32)
    return codes, zeros, scales, values.astype(np.float32)


Make = Callable[[tuple[int, int], int], tuple[dict[str, Array], Array]]


def as_awq(group: int | None) -> Make:
    def make(shape: tuple[int, int], seed: int) -> tuple[dict[str, Array], Array]:
        codes, zeros, scales, values = grid(shape, 4, group or shape[1], False, seed)
        return pack.awq(codes, zeros, scales), values

    return make


def as_gptq(bits: int, group: int | None, less_one: bool, symmetric: bool = False) -> Make:
    def make(shape: tuple[int, int], seed: int) -> tuple[dict[str, Array], Array]:
        codes, zeros, scales, values = grid(shape, bits, group or shape[1], symmetric, seed)
        return pack.gptq(codes, zeros, scales, bits, less_one), values

    return make


def as_packed(bits: int, group: int | None, symmetric: bool) -> Make:
    def make(shape: tuple[int, int], seed: int) -> tuple[dict[str, Array], Array]:
        codes, zeros, scales, values = grid(shape, bits, group or shape[1], symmetric, seed)
        return pack.packed(codes, None if symmetric else zeros, scales, bits), values

    return make


def as_bytes(shape: tuple[int, int], seed: int) -> tuple[dict[str, Array], Array]:
    codes, _, scales, values = grid(shape, 8, shape[1], True, seed)
    return {"weight": (codes - 128).astype(np.int8), "weight_scale": scales}, values


def as_float8(name: str) -> Make:
    def make(shape: tuple[int, int], seed: int) -> tuple[dict[str, Array], Array]:
        rng = np.random.default_rng(seed)
        held = (rng.standard_normal(shape) * 16).astype(ml_dtypes.float8_e4m3fn)
        scale_shape = {"weight_scale": (shape[0], 1), "weight_scale_inv": (1, 1)}[name]
        scale = (2.0 ** -rng.integers(4, 8, scale_shape)).astype(np.float32)
        return {"weight": held.view(np.uint8), name: scale}, held.astype(np.float32) * scale

    return make


GPTQ, GPTQ2 = {"quant_method": "gptq"}, {"quant_method": "gptq", "checkpoint_format": "gptq_v2"}
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
KINDS: dict[str, tuple[dict[str, Any], Make]] = {
    "awq, groups of 32": ({"quant_method": "awq", "version": "gemm", "bits": 4}, as_awq(32)),
    "awq, whole rows": ({"quant_method": "awq"}, as_awq(None)),
    "gptq of 4 bits": (GPTQ, as_gptq(4, 32, True)),
    "gptq of 4 bits, symmetric": (GPTQ, as_gptq(4, 16, True, symmetric=True)),
    "gptq of 8 bits, second version": (GPTQ2, as_gptq(8, 32, False)),
    "gptq of 3 bits": (GPTQ, as_gptq(3, 32, True)),
    "gptq of 2 bits": (GPTQ2, as_gptq(2, None, False)),
    "packed, 4 bits": (PACKED, as_packed(4, 32, True)),
    "packed, 4 bits with zero points": (PACKED, as_packed(4, 16, False)),
    "packed, 8 bits, whole rows": (PACKED, as_packed(8, None, False)),
    "bytes": ({"quant_method": "compressed-tensors", "format": "int-quantized"}, as_bytes),
    "float8": ({"quant_method": "compressed-tensors", "format": "float-quantized"}, as_float8("weight_scale")),
    "float8 in squares": ({"quant_method": "fp8"}, as_float8("weight_scale_inv")),
}


def tensors_of(make: Make) -> tuple[dict[str, Array], dict[str, Array]]:
    """The tensors of the tiny Llama with packed matrices, and with the values that these stand for."""
    shapes = json.loads((GOLDEN / "tiny.json").read_text())["variants"]["llama-gqa"]["shapes"]
    quantised: dict[str, Array] = {}
    plain: dict[str, Array] = {}
    for index, (name, values) in enumerate(tiny_tensors(CONFIG, shapes).items()):
        plain[name] = quantised[name] = values
        if any(projection in name for projection in PROJECTIONS) and name.endswith(".weight") and values.shape[1] % 32 == 0:
            arrays, plain[name] = make((values.shape[0], values.shape[1]), index)
            del quantised[name]
            quantised |= {f"{name.removesuffix('.weight')}.{end}": array for end, array in arrays.items()}
    assert quantised.keys() != plain.keys() or any(quantised[name].dtype != plain[name].dtype for name in plain)
    return quantised, plain


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_that_were_packed_and_the_model_runs_on_them(kind: str, tmp_path: Path) -> None:
    section, make = KINDS[kind]
    quantised, plain = tensors_of(make)
    folder = pack.write(tmp_path / "packed", {**CONFIG, "quantization_config": section}, quantised)
    checkpoint = open_checkpoint(folder)
    for name, values in plain.items():
        tensor = checkpoint.tensors[name]
        assert np.array_equal(tensor.to_float32(), values), name
        if tensor.bits is not None:
            assert np.array_equal(evaluate(tensor.to_codes()), values), name
            assert np.array_equal(tensor.rows(3, 9).to_float32(), values[3:9])
    ids = prompt("llama-gqa", 40, CONFIG["vocab_size"])
    twin = Runner(pack.write(tmp_path / "plain", CONFIG, plain), "reference", max_model_len=64)
    found = Runner(folder, "reference", max_model_len=64)
    held = Runner(folder, "cpu", max_model_len=64)
    results = []
    for runner in (twin, found, held):
        runner.add(0, ids)
        results.append(runner.prefill(0, len(ids), [len(ids) - 1]))
    assert np.array_equal(results[0], results[1])
    scale = np.abs(results[0]).max()
    assert np.abs(results[2] - results[0]).max() < 0.03 * scale, "held as codes, activations are rounded to int8"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"quant_method": "bitsandbytes"}, "quant_method.*bitsandbytes.*known: awq, gptq"),
        ({"quant_method": "awq", "version": "gemv"}, "only the gemm layout of 4 bits"),
        ({"quant_method": "awq", "bits": 3}, "only the gemm layout of 4 bits"),
        ({"quant_method": "gptq", "checkpoint_format": "marlin"}, "checkpoint_format.*marlin"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "format.*nvfp4"),
        (4, "quantization_config"),
    ],
)
def test_what_is_not_read_is_refused_by_name(section: object, words: str, tmp_path: Path) -> None:
    folder = pack.write(tmp_path / "other", {**CONFIG, "quantization_config": section}, tensors_of(as_awq(32))[0])
    with pytest.raises(LoadError, match=words):
        open_checkpoint(folder)


def broken(change: Callable[[dict[str, Array]], None], make: Make) -> dict[str, Array]:
    tensors, _ = tensors_of(make)
    change(tensors)
    return tensors


Q = "model.layers.0.self_attn.q_proj"


def _shuffle(tensors: dict[str, Array]) -> None:
    tensors[f"{Q}.g_idx"] = tensors[f"{Q}.g_idx"][::-1].copy()


def _cut_scales(tensors: dict[str, Array]) -> None:
    tensors[f"{Q}.scales"] = tensors[f"{Q}.scales"][:, :-8].copy()


def _cut_words(tensors: dict[str, Array]) -> None:
    tensors[f"{Q}.qweight"] = tensors[f"{Q}.qweight"][:-1].copy()


def _drop_scales(tensors: dict[str, Array]) -> None:
    del tensors[f"{Q}.scales"]


def _flat_words(tensors: dict[str, Array]) -> None:
    tensors[f"{Q}.qweight"] = tensors[f"{Q}.qweight"].ravel()


def _no_scales(tensors: dict[str, Array]) -> None:
    tensors[f"{Q}.scales"] = tensors[f"{Q}.scales"][:0].copy()


def _float_words(tensors: dict[str, Array]) -> None:
    tensors[f"{Q}.qweight"] = tensors[f"{Q}.qweight"].astype(np.float32)


@pytest.mark.parametrize(
    "change", [_shuffle, _cut_scales, _cut_words, _drop_scales, _flat_words, _no_scales, _float_words], ids=lambda f: f.__name__
)
def test_arrays_that_do_not_fit_are_refused_with_file_and_tensor(
    change: Callable[[dict[str, Array]], None], tmp_path: Path
) -> None:
    section = {**CONFIG, "quantization_config": GPTQ}
    folder = pack.write(tmp_path / "broken", section, broken(change, as_gptq(4, 32, True)))
    with pytest.raises(LoadError, match=r"model\.safetensors: .*q_proj"):
        Runner(folder, "cpu", max_model_len=64)


@pytest.mark.parametrize("asked", ["gptq", "fp8", "compressed-tensors"])
def test_an_option_that_names_another_method_is_refused(asked: str, tmp_path: Path) -> None:
    folder = pack.write(tmp_path / "awq", {**CONFIG, "quantization_config": {"quant_method": "awq"}}, tensors_of(as_awq(32))[0])
    model, _ = open_config(folder)
    for quantization, fits in ((asked, False), ("awq", True), ("auto", True)):
        refused = pytest.raises(ConfigError, match=f"--quantization {asked}: .*with awq")
        with contextlib.nullcontext() if fits else refused:
            check_method(LoadingConfig(model=str(folder), quantization=quantization), model)


def _mutated(rng: random.Random, array: Array) -> Array:
    """Cut, flattened, turned, of another type, or with other bytes."""
    raw = bytearray(array.tobytes())
    for _ in range(8):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    ways: list[Callable[[], Array]] = [
        lambda: array[: rng.randrange(len(array))].copy(),
        lambda: array.ravel().copy(),
        lambda: np.ascontiguousarray(array.T),
        lambda: array.astype(rng.choice(["float32", "int32", "int8", "float16", "int64"])),
        lambda: np.concatenate([array, array]),
        lambda: np.frombuffer(bytes(raw), array.dtype).reshape(array.shape),
    ]
    with np.errstate(all="ignore"):
        return rng.choice(ways)()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_folder_loads_or_is_refused(kind: str, seed: int, tmp_path: Path) -> None:
    section, make = KINDS[kind]
    rng = random.Random(f"{kind} {seed}")
    tensors, _ = tensors_of(make)
    for name in rng.sample([name for name in tensors if any(projection in name for projection in PROJECTIONS)], 2):
        tensors[name] = _mutated(rng, tensors[name])
    folder = pack.write(tmp_path / "damaged", {**CONFIG, "quantization_config": section}, tensors)
    with contextlib.suppress(LoadError):
        Runner(folder, "cpu", max_model_len=64)
