"""quantization_config of config.json: who quantised a folder, and what octavo does not read of it.

Keys are those of transformers and vLLM; older AWQ and GPTQ folders have them in a file of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from octavo.config.model import QuantisedFolder
from octavo.loader.fields import Fields, read_json_object, shown

OWN_FILES = {"quant_config.json": "awq", "quantize_config.json": "gptq"}
"""Where AutoAWQ and AutoGPTQ wrote their settings before config.json had a place for them."""
_MAX_GROUP = 1 << 20
_GPTQ_BITS = (2, 3, 4, 8)
_GPTQ_LAYOUTS = ("gptq", "gptq_v2")
_CT_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision", "dense")


def read_quantisation(fields: Fields, folder: Path | None = None) -> QuantisedFolder | None:
    """None: the weights are floats. folder: where config.json lies.

    Raises: LoadError naming file and key for what octavo does not read.
    """
    key = next((name for name in ("quantization_config", "compression_config") if fields.has(name)), None)
    if key is None:
        own = next((name for name in OWN_FILES if folder is not None and (folder / name).is_file()), None)
        if own is None or folder is None:
            return None
        return _READERS[OWN_FILES[own]](Fields(read_json_object(folder / own), str(folder / own), quiet=fields.quiet))
    section = fields.section(key)
    assert section is not None
    method = section.text("quant_method", "unknown").lower()
    if method not in _READERS:
        known = "awq, gptq, compressed-tensors, fp8"
        raise section.error(
            "quant_method", f"is {shown(method)}, which is not supported; known: {known}. Load a GGUF file instead"
        )
    return _READERS[method](section)


def _group_size(section: Fields, key: str) -> int | None:
    """None: the whole row, which files write as -1."""
    size = section.integer(key, -1, low=-1, high=_MAX_GROUP)
    if size == 0:
        raise section.error(key, "is 0, expected columns per scale, or -1 for whole rows")
    return None if size == -1 else size


def _awq(section: Fields) -> QuantisedFolder:
    version = section.text("version", "gemm").lower()
    bits = section.integer("bits", section.integer("w_bit", 4))
    if version != "gemm" or bits != 4 or section.text("backend", "autoawq") == "llm-awq":
        what = f"{shown(version)} of {bits} bits"
        raise section.error("version", f"is {what}; only the gemm layout of 4 bits is supported. Load a GGUF file instead")
    return QuantisedFolder(
        method="awq", group_size=_group_size(section, "group_size" if section.has("group_size") else "q_group_size")
    )


def _gptq(section: Fields) -> QuantisedFolder:
    layout = section.text("checkpoint_format", "gptq").lower()
    if layout not in _GPTQ_LAYOUTS or section.flag("is_marlin_format", False):
        known = ", ".join(_GPTQ_LAYOUTS)
        shown_layout = shown(layout if layout not in _GPTQ_LAYOUTS else "marlin")
        raise section.error("checkpoint_format", f"is {shown_layout}; known: {known}. Load a GGUF file instead")
    bits = section.integer("bits", 4, low=0, high=64)
    if bits not in _GPTQ_BITS:
        raise section.error("bits", f"is {bits}; known: {', '.join(map(str, _GPTQ_BITS))}. Load a GGUF file instead")
    return QuantisedFolder(method="gptq", zeros_less_one=layout == "gptq", group_size=_group_size(section, "group_size"))


def _auto_round(section: Fields) -> QuantisedFolder:
    """Intel's AutoRound, which packs as others do."""
    packing = section.text("packing_format", "auto_round:auto_gptq").lower()
    if packing == "auto_round:auto_awq":
        return _awq(section)
    if packing != "auto_round:auto_gptq":
        known = "auto_round:auto_gptq, auto_round:auto_awq"
        raise section.error("packing_format", f"is {shown(packing)}; known: {known}. Load a GGUF file instead")
    return _gptq(section)


def _compressed(section: Fields) -> QuantisedFolder:
    """Of its schemes only what the arrays cannot say is read: formats, and the size of groups whose last one is short."""
    if section.values.get("transform_config"):
        raise section.error("transform_config", "rotates activations, which is not supported. Load a GGUF file instead")
    sparsity = section.section("sparsity_config")
    if sparsity is not None and sparsity.text("format", "dense") != "dense":
        raise sparsity.error("format", f"is {shown(sparsity.text('format'))}; known: dense. Load a GGUF file instead")
    formats, sizes = [(section, section.text("format", "dense"))], set()
    groups = section.section("config_groups")
    for name in () if groups is None else groups.values:
        group = None if groups is None else groups.section(name)
        weights = None if group is None else group.section("weights")
        if group is None or weights is None:
            continue
        formats.append((group, group.text("format", "dense")))
        if weights.integer("num_bits", 8, low=0, high=64) > 8:
            raise weights.error("num_bits", f"is {weights.value('num_bits')}; known: up to 8")
        sizes.add(_group_size(weights, "group_size"))
    for place, layout in formats:
        if layout.lower() not in _CT_FORMATS:
            raise place.error("format", f"is {shown(layout)}; known: {', '.join(_CT_FORMATS)}. Load a GGUF file instead")
    return QuantisedFolder(method="compressed-tensors", group_size=sizes.pop() if len(sizes) == 1 else None)


def _fp8(section: Fields) -> QuantisedFolder:
    block = section.values.get("weight_block_size")
    plain = QuantisedFolder(method="fp8")
    if block is None:
        return plain
    if not isinstance(block, list) or len(block) != 2 or any(not _is_size(size) for size in block):
        raise section.error("weight_block_size", f"is {shown(block)}, expected two sizes, as [128, 128]")
    return replace(plain, block=(block[0], block[1]))


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_GROUP


_READERS: dict[str, Callable[[Fields], QuantisedFolder]] = {
    "awq": _awq,
    "gptq": _gptq,
    "auto-round": _auto_round,
    "intel/auto-round": _auto_round,
    "compressed-tensors": _compressed,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
}
