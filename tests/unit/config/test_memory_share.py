"""--gpu-memory-utilization: a share of this process's memory for weights and KV cache."""

from __future__ import annotations

import pytest

from octavo.config.cache import GIB
from octavo.config.machine import Machine
from octavo.config.memory_share import share_for_cache
from octavo.errors import ConfigError

MACHINE = Machine(num_cpus=2, available_bytes=6 * GIB, total_bytes=8 * GIB)


def test_the_weights_come_out_of_the_share() -> None:
    notices: list[str] = []
    assert share_for_cache(0.5, MACHINE, GIB, notices) == 3 * GIB and notices == []


def test_without_a_share_there_is_no_answer() -> None:
    assert share_for_cache(None, MACHINE, GIB, []) is None


def test_what_is_not_free_is_left_out_with_a_notice() -> None:
    notices: list[str] = []
    assert share_for_cache(1.0, MACHINE, GIB, notices) == 6 * GIB
    assert notices == ["--gpu-memory-utilization 1 would give the KV cache 7.00 GiB, but 6.00 GiB are free: it gets no more"]


def test_a_share_that_the_weights_fill_is_refused_with_the_way_out() -> None:
    with pytest.raises(
        ConfigError, match=r"0.25 of 8.00 GiB is less than the weights take, 3.00 GiB; give more than 0.38"
    ) as caught:
        share_for_cache(0.25, MACHINE, 3 * GIB, [])
    assert caught.value.param == "gpu_memory_utilization"
