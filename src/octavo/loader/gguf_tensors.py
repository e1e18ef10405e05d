"""The tensors of GGUF files as a model's parameters, with the meaning that Hugging Face gives them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from octavo.errors import LoadError
from octavo.loader.bind import bind
from octavo.loader.gguf import GgufFile, GgufTensor
from octavo.loader.parameter import Parameter
from octavo.loader.stored import StoredRows, StoredTensor

log = logging.getLogger(__name__)

_CONFIG_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
"""Read into RopeConfig; they are no parameters."""


def bind_gguf(files: Sequence[GgufFile], declared: Sequence[Parameter]) -> dict[str, StoredTensor]:
    """Parameter name -> tensor; other tensors of the files are logged at debug level and left out.

    Raises: LoadError naming file and tensor when one is missing, has another shape, or is in two shards.
    """
    found: dict[str, GgufTensor] = {}
    for tensor in (tensor for file in files for tensor in file.tensors.values()):
        if tensor.name in found:
            raise LoadError(f"{tensor.source}: the tensor is also in another shard")
        found[tensor.name] = tensor

    def find(name: str, parameter: str) -> StoredTensor | None:
        tensor = found.get(name)
        return None if tensor is None else StoredRows(parameter, tensor.shape, tensor.format, tensor.data, None, tensor.source)

    tensors = bind(declared, lambda parameter: parameter.gguf, find, str(files[0].path))
    used = {parameter.gguf.tensor for parameter in declared}
    for name in found.keys() - used - set(_CONFIG_TENSORS):
        log.debug("%s: not used by the model", found[name].source)
    return tensors | {
        parameter.name: _without_offset(tensors[parameter.name], parameter.offset) for parameter in declared if parameter.offset
    }


def _without_offset(tensor: StoredTensor, offset: float) -> StoredTensor:
    """A vector less what the converter has added, float32."""
    # Exact wherever the model's own 1 + weight can show it: for stored values of at least 0.5 the difference is a float32.
    values = tensor.to_float32() - np.float32(offset)
    return StoredRows(tensor.name, tensor.shape, "f32", values[None].view(np.uint8), None, tensor.source)
