"""Device names to backends."""

from __future__ import annotations

from typing import Any, TypeAlias

from octavo.errors import ConfigError
from octavo.ops.interface import Backend
from octavo.registry import Registry

BACKENDS = Registry(
    "device",
    {"cpu": "octavo.ops.cpu.backend:CpuBackend", "reference": "octavo.ops.reference.backend:ReferenceBackend"},
    ConfigError,
)


AnyBackend: TypeAlias = Backend[Any, Any, Any, Any]
"""A backend that is chosen by name: which handles it deals in is known only while it runs."""


def make_backend(device: str, *, num_threads: int, isa: str, dtype: str, quantization: str, group_size: int = 32) -> AnyBackend:
    """The backend of a device, loaded when asked for.

    num_threads, isa       as in BackendConfig, resolved
    dtype, quantization, group_size   as in LoadingConfig: what `load_linear` stores

    Raises: ConfigError for an unknown device, or settings that the device refuses.
    """
    backend: AnyBackend = BACKENDS.load(device)(
        num_threads=num_threads, isa=isa, dtype=dtype, quantization=quantization, group_size=group_size
    )
    return backend
