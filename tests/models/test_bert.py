"""What the BERT encoder declares: the names that transformers saves, roles and cuts, and no more than it loads."""

from __future__ import annotations

from pathlib import Path

from tests.checkpoints import open_checkpoint
from tests.tiny_bert import tensor_shapes, write_bert

from octavo.models.registry import load_model
from octavo.models.source import LoadedParameters
from octavo.ops.reference.ops import ReferenceOps


def test_it_declares_what_transformers_saves(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_bert(tmp_path))
    assert {parameter.name: parameter.shape for parameter in checkpoint.parameters} == tensor_shapes()
    assert len({parameter.gguf.tensor for parameter in checkpoint.parameters}) == len(checkpoint.parameters)
    load_model(checkpoint.config, LoadedParameters(checkpoint.tensors, ReferenceOps("auto", "auto")))


def test_roles_and_cuts_are_those_of_the_other_families(tmp_path: Path) -> None:
    declared = {parameter.name: parameter for parameter in open_checkpoint(write_bert(tmp_path)).parameters}
    expected = {
        "embeddings.position_embeddings.weight": ("embedding", "output"),
        "encoder.layer.1.attention.self.query.weight": ("attention", "output"),
        "encoder.layer.1.attention.self.value.bias": ("attention", "output"),
        "encoder.layer.1.attention.output.dense.weight": ("attention", "input"),
        "encoder.layer.1.attention.output.dense.bias": ("attention", None),
        "encoder.layer.1.intermediate.dense.weight": ("mlp", "output"),
        "encoder.layer.1.output.dense.weight": ("mlp", "input"),
        "encoder.layer.1.output.LayerNorm.bias": ("norm", None),
    }
    assert {name: (declared[name].role, declared[name].cut) for name in expected} == expected


def test_names_may_begin_with_the_name_of_the_model(tmp_path: Path) -> None:
    folder = write_bert(tmp_path)
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + size].rstrip().replace(b'"embeddings.', b'"bert.embeddings.').replace(b'"encoder.', b'"bert.encoder.')
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size :])
    assert len(open_checkpoint(folder).tensors) == len(tensor_shapes())
