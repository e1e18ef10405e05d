"""Bytes of KV blocks."""

from __future__ import annotations

from pathlib import Path

from tests.worker_driver import tiny_checkpoint

from octavo.worker.memory import kv_block_bytes


def test_a_block_holds_keys_and_values_of_every_layer(tmp_path: Path) -> None:
    config = tiny_checkpoint(tmp_path, "llama-gqa").config
    assert kv_block_bytes(config, 16, "float32") == 2 * 2 * 2 * 16 * 16 * 4
    assert kv_block_bytes(config, 16, "bfloat16") == 2 * 2 * 2 * 16 * 16 * 2
    assert kv_block_bytes(config, 16, "int8") == 2 * 2 * 2 * 16 * (16 + 4)
