"""share_for_cache: what --gpu-memory-utilization leaves for the KV cache."""

from __future__ import annotations

from octavo.config.cache import GIB
from octavo.config.machine import Machine
from octavo.errors import ConfigError


def share_for_cache(share: float | None, machine: Machine, weight_bytes: int, notices: list[str]) -> int | None:
    """Bytes for the KV cache: the share of the process's memory but for the weights, and no more than is free now.

    The weights are loaded already, so machine.available_bytes is what they left. None without a share.
    Raises ConfigError where the weights alone take the share.
    """
    if share is None:
        return None
    wanted = int(share * machine.total_bytes) - weight_bytes
    if wanted <= 0:
        least = -(-(weight_bytes + 1) * 100 // machine.total_bytes) / 100 if machine.total_bytes else 1
        raise ConfigError(
            f"--gpu-memory-utilization {share:g} of {machine.total_bytes / GIB:.2f} GiB is less than the weights take, "
            f"{weight_bytes / GIB:.2f} GiB; give more than {least:g}, or leave it out",
            param="gpu_memory_utilization",
        )
    free = machine.available_bytes
    if wanted > free:
        notices.append(
            f"--gpu-memory-utilization {share:g} would give the KV cache {wanted / GIB:.2f} GiB, but {free / GIB:.2f} GiB are "
            "free: it gets no more"
        )
    return min(wanted, free)
