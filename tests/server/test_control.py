"""The admin routes: what they answer, and what they refuse with the field's name."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from tests.server.conftest import LiveServer, live_server

from octavo.config.changes import settings_in_force
from octavo.config.server import ServerConfig


@pytest.fixture
def admin() -> Iterator[tuple[LiveServer, httpx.Client]]:
    headers = {"authorization": "Bearer adm"}
    with (
        live_server(ServerConfig(admin_api_key="adm")) as live,
        httpx.Client(base_url=live.url, headers=headers, timeout=15) as client,
    ):
        yield live, client


def test_settings_change_and_are_shown(admin: tuple[LiveServer, httpx.Client]) -> None:
    live, client = admin
    before = client.get("/admin/config").json()["settings"]
    answer = client.post("/admin/reconfigure", json={"max_num_seqs": 8, "block_size": 32, "num_blocks": None})
    assert answer.status_code == 200, answer.text
    assert answer.json()["changed"] == {"max_num_seqs": [64, 8], "block_size": [16, 32], "num_blocks": [64, 32]}
    after = client.get("/admin/config").json()["settings"]
    assert after == {**before, "max_num_seqs": 8, "block_size": 32, "num_blocks": 32} == answer.json()["settings"]
    assert settings_in_force(live.engine.resolved_config) == after


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, None),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_num_seqs": "8"}, "max_num_seqs"),
        ({"max_num_seqs": 2**63}, "max_num_seqs"),
        ({"block_size": -(2**64)}, "block_size"),
        ({"num_blocks": 10**30}, "num_blocks"),
        ({"max_num_batched_tokens": 2**62}, "max_num_batched_tokens"),
        ({"chunked_prefill_size": 1e300}, "chunked_prefill_size"),
        ({"max_num_seqs": 8.5}, "max_num_seqs"),
        ({"max_num_seqs": 8, "block_size": 12}, "block_size"),
        ({"block_size": 256}, "block_size"),
        ({"num_blocks": 31}, "num_blocks"),
        ({"num_blocks": 64, "kv_cache_memory": 1.0}, "num_blocks"),
        ({"kv_cache_memory": 3.0}, "kv_cache_memory"),
        ({"chunked_prefill_size": 1024}, "chunked_prefill_size"),
        ({"max_num_batched_tokens": 64}, "max_num_batched_tokens"),
        ({"scheduler_policy": "lifo"}, "scheduler_policy"),
        ({"max_num_sequences": 8}, "max_num_sequences"),
        ({"model": "other"}, "model"),
    ],
)
def test_what_cannot_be_is_refused_whole(
    admin: tuple[LiveServer, httpx.Client], body: dict[str, object], param: str | None
) -> None:
    live, client = admin
    before = live.engine.resolved_config
    answer = client.post("/admin/reconfigure", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert live.engine.resolved_config is before


def test_the_memory_report_explains_its_block_map(admin: tuple[LiveServer, httpx.Client]) -> None:
    report = admin[1].get("/admin/memory").json()
    assert report["block_map"] == "...." and report["block_letters"]["."].startswith("free")
    assert (report["num_blocks"], report["block_size"], report["waste"], report["sequences"]) == (4, 16, 0.0, [])
