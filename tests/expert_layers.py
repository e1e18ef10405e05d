"""A mixture of experts made of a dense GGUF file: real weights and tokenizer, the MLPs of several layers as experts of one.

It says nothing sensible, but what a batch, a cache or a thread does wrong shows in it as in any other.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

NUM_LAYERS, NUM_EXPERTS, TOP_K = 2, 8, 3


def write(source: Path, target: Path) -> Path:
    """Write the mixture of experts to target; returns it."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "llama.block_count"):
            continue
        value_type = field.types[0]
        sub_type = field.types[-1] if value_type == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), value_type, sub_type)
    writer.add_block_count(NUM_LAYERS)
    writer.add_expert_count(NUM_EXPERTS)
    writer.add_expert_used_count(TOP_K)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    rng = np.random.default_rng(0)
    for name, tensor in tensors.items():
        layer = int(name.split(".")[1]) if name.startswith("blk.") else -1
        if layer < NUM_LAYERS and ".ffn_gate." not in name and ".ffn_up." not in name and ".ffn_down." not in name:
            writer.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)
    hidden = int(tensors["output_norm.weight"].shape[0])
    for layer in range(NUM_LAYERS):
        writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", rng.standard_normal((NUM_EXPERTS, hidden), np.float32))
        for kind in ("gate", "up", "down"):
            stack = [tensors[f"blk.{layer * NUM_EXPERTS + expert}.ffn_{kind}.weight"] for expert in range(NUM_EXPERTS)]
            assert len({part.tensor_type for part in stack}) == 1
            data = np.stack([part.data for part in stack])
            writer.add_tensor(f"blk.{layer}.ffn_{kind}_exps.weight", data, raw_dtype=stack[0].tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
