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
from octavo.ops.weight_storage import WeightStorage, weight_storage

GOLDEN = Path(__file__).parent.parent / "golden" / "models"
HELD_TOLERANCE = 0.1
"""Largest difference of a logit, relative to the largest, that rounding activations makes on random codes in a tiny model."""
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


def as_gptq_by_activation(bits: int, group: int) -> Make:
    """desc_act: the columns of a group lie anywhere. Matrices with one input have one order."""

    def make(shape: tuple[int, int], seed: int) -> tuple[dict[str, Array], Array]:
        codes, zeros, scales, _ = grid(shape, bits, group, False, seed)
        order = np.random.default_rng(shape[1]).permutation(shape[1])
        arrays = pack.gptq(codes, zeros, scales, bits, True)
        arrays["g_idx"] = arrays["g_idx"][order]
        return arrays, (scales[:, arrays["g_idx"]] * (codes - zeros[:, arrays["g_idx"]])).astype(np.float32)

    return make


def as_awq_with_a_short_group(shape: tuple[int, int], seed: int) -> tuple[dict[str, Array], Array]:
    """64 columns and then the rest, of which there may be none."""
    wide = (shape[0], -(-shape[1] // 64) * 64)
    codes, zeros, scales, values = grid(wide, 4, 64, False, seed)
    return pack.awq(codes[:, : shape[1]], zeros, scales), values[:, : shape[1]]


def as_packed(bits: int, group: int | None, symmetric: bool) -> Make:
    def make(shape: tuple[int, int], seed: int) -> tuple[dict[str, Array], Array]:
        codes, zeros, scales, values = grid(shape, bits, group or shape[1], symmetric, seed)
        return pack.packed(codes, None if symmetric else zeros, scales, bits), values

    return make


def as_bytes(shape: tuple[int, int], seed: int) -> tuple[dict[str, Array], Array]:
    codes, _, scales, values = grid(shape, 8, shape[1], True, seed)
    return {"weight": (codes - 128).astype(np.int8), "weight_scale": scales}, values


def as_float8_in_blocks(shape: tuple[int, int], seed: int) -> tuple[dict[str, Array], Array]:
    """32 x 16 values share a scale."""
    rng = np.random.default_rng(seed)
    held = (rng.standard_normal(shape) * 16).astype(ml_dtypes.float8_e4m3fn)
    scale = (2.0 ** -rng.integers(4, 8, (-(-shape[0] // 32), -(-shape[1] // 16)))).astype(np.float32)
    values = held.astype(np.float32) * np.repeat(np.repeat(scale, 32, 0)[: shape[0]], 16, 1)[:, : shape[1]]
    return {"weight": held.view(np.uint8), "weight_scale_inv": scale}, values


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
    "gptq of 4 bits by activation": ({**GPTQ, "desc_act": True}, as_gptq_by_activation(4, 32)),
    "gptq of 3 bits by activation": ({**GPTQ, "desc_act": True}, as_gptq_by_activation(3, 16)),
    "gptq of 8 bits by activation": ({**GPTQ, "desc_act": True}, as_gptq_by_activation(8, 32)),
    "awq, the last group is short": ({"quant_method": "awq", "group_size": 64}, as_awq_with_a_short_group),
    "auto-round, packed as gptq": (
        {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4},
        as_gptq(4, 32, True),
    ),
    "packed, 4 bits": (PACKED, as_packed(4, 32, True)),
    "packed, 4 bits with zero points": (PACKED, as_packed(4, 16, False)),
    "packed, 8 bits, whole rows": (PACKED, as_packed(8, None, False)),
    "bytes": ({"quant_method": "compressed-tensors", "format": "int-quantized"}, as_bytes),
    "float8": ({"quant_method": "compressed-tensors", "format": "float-quantized"}, as_float8("weight_scale")),
    "float8 in squares": ({"quant_method": "fp8"}, as_float8("weight_scale_inv")),
    "float8 in blocks": ({"quant_method": "fp8", "weight_block_size": [32, 16]}, as_float8_in_blocks),
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
    wide = Runner(folder, "cpu", max_model_len=64)
    held = Runner(folder, "cpu", max_model_len=64, dtype="auto")
    results = []
    for runner in (twin, found, wide, held):
        runner.add(0, ids)
        results.append(runner.prefill(0, len(ids), [len(ids) - 1]))
    assert np.array_equal(results[0], results[1])
    scale = np.abs(results[0]).max()
    assert np.abs(results[2] - results[0]).max() < 1e-4 * scale, "held as float32"
    # One order of columns mixed up with another is off by the size of the logits themselves.
    assert np.abs(results[3] - results[0]).max() < HELD_TOLERANCE * scale, "held as codes, activations are rounded to int8"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"quant_method": "bitsandbytes"}, "quant_method.*bitsandbytes.*known: awq, gptq"),
        ({"quant_method": "awq", "version": "gemv"}, "only the gemm layout of 4 bits"),
        ({"quant_method": "awq", "bits": 3}, "only the gemm layout of 4 bits"),
        ({"quant_method": "gptq", "checkpoint_format": "marlin"}, "checkpoint_format.*marlin"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "format.*nvfp4"),
        ({**PACKED, "transform_config": {"config_groups": {"R1": {}}}}, "transform_config rotates activations"),
        ({**PACKED, "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config: format.*sparse-24"),
        ({**PACKED, "config_groups": {"a": {"format": "mxfp4-pack-quantized", "weights": {}}}}, "a: format.*mxfp4"),
        ({"quant_method": "gptq", "bits": 5}, "bits is 5; known: 2, 3, 4, 8"),
        ({"quant_method": "gptq", "is_marlin_format": True}, "checkpoint_format.*marlin"),
        ({"quant_method": "gptq", "group_size": 0}, "group_size is 0"),
        ({"quant_method": "auto-round", "packing_format": "auto_round"}, "packing_format.*auto_round:auto_gptq"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, r"weight_block_size is \[128\]"),
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


def _far_group(tensors: dict[str, Array]) -> None:
    tensors[f"{Q}.g_idx"] = tensors[f"{Q}.g_idx"] + 1


def _group_below_zero(tensors: dict[str, Array]) -> None:
    tensors[f"{Q}.g_idx"] = tensors[f"{Q}.g_idx"] - 2


def _groups_of_too_few(tensors: dict[str, Array]) -> None:
    tensors[f"{Q}.g_idx"] = np.arange(len(tensors[f"{Q}.g_idx"]), dtype=np.int32) % 7 // 6


def _short_index(tensors: dict[str, Array]) -> None:
    tensors[f"{Q}.g_idx"] = tensors[f"{Q}.g_idx"][:-1].copy()


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
    "change",
    [
        *(_far_group, _group_below_zero, _groups_of_too_few, _short_index, _cut_scales, _cut_words, _drop_scales, _flat_words),
        *(_no_scales, _float_words),
    ],
    ids=lambda f: f.__name__,
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


def test_matrices_of_one_input_in_different_orders_are_refused_with_the_way_out(tmp_path: Path) -> None:
    tensors, _ = tensors_of(as_gptq_by_activation(4, 32))
    tensors[f"{Q}.g_idx"] = tensors[f"{Q}.g_idx"][::-1].copy()
    folder = pack.write(tmp_path / "orders", {**CONFIG, "quantization_config": GPTQ}, tensors)
    with pytest.raises(LoadError, match="in another way than a matrix that has the same input; add --dtype bfloat16"):
        Runner(folder, "cpu", max_model_len=64, dtype="auto")
    Runner(folder, "cpu", max_model_len=64, dtype="bfloat16")


@pytest.mark.parametrize("make", [as_awq(32), as_gptq(8, 32, True), as_packed(4, None, True)])
def test_a_head_of_codes_is_the_models_own_though_the_embedding_is_said_to_be_it(make: Make, tmp_path: Path) -> None:
    quantised, plain = tensors_of(make)
    head, values = make((CONFIG["vocab_size"], CONFIG["hidden_size"]), 99)
    del quantised["lm_head.weight"]
    quantised |= {f"lm_head.{end}": array for end, array in head.items()}
    method = "compressed-tensors" if "weight_packed" in head else "awq" if "g_idx" not in head else "gptq"
    config = {**CONFIG, "tie_word_embeddings": True, "quantization_config": {"quant_method": method}}
    checkpoint = open_checkpoint(pack.write(tmp_path / "head", config, quantised))
    assert not checkpoint.config.tie_embeddings
    assert np.array_equal(checkpoint.tensors["lm_head.weight"].to_float32(), values)


@pytest.mark.parametrize(("name", "method"), [("quant_config.json", "awq"), ("quantize_config.json", "gptq")])
def test_older_folders_have_their_settings_in_a_file_of_their_own(name: str, method: str, tmp_path: Path) -> None:
    make = as_awq(32) if method == "awq" else as_gptq(4, 32, True)
    quantised, plain = tensors_of(make)
    folder = pack.write(tmp_path / "older", CONFIG, quantised)
    (folder / name).write_text(
        json.dumps({"w_bit": 4, "q_group_size": 32} if method == "awq" else {"bits": 4, "group_size": 32})
    )
    checkpoint = open_checkpoint(folder)
    assert checkpoint.config.quantised is not None and checkpoint.config.quantised.method == method
    assert all(np.array_equal(checkpoint.tensors[key].to_float32(), values) for key, values in plain.items())


@pytest.mark.parametrize("quantization", ["awq", "auto"])
def test_a_dtype_beside_the_folders_own_method_leaves_its_codes_alone(quantization: str, tmp_path: Path) -> None:
    """vLLM's users write quantization="awq", dtype="half": the codes stay. Where no method is named, dtype asks for values."""
    quantised, _ = tensors_of(as_awq(32))
    folder = pack.write(tmp_path / "half", {**CONFIG, "quantization_config": {"quant_method": "awq"}}, quantised)
    tensor = open_checkpoint(folder).tensors[f"{Q}.weight"]
    storage = weight_storage(tensor, "attention", "output", "float16", quantization, 32)
    assert storage == WeightStorage(None if quantization == "awq" else "f16", None)


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
