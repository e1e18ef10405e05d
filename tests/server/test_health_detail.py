"""Health in words, and what a service manager is told."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest
from tests.fakes_server import FakeEngine
from tests.served import Served
from tests.server.conftest import live_server

from octavo.config.server import ServerConfig
from octavo.engine.frontend.ledger import RequestRecord
from octavo.engine.wire.messages import CoreStats


def open_requests(engine: FakeEngine, count: int) -> None:
    for index in range(count):
        engine.ledger.open(RequestRecord(f"r{index}", 1, 1, 1, arrival_s=0.0))


def test_each_status_says_why() -> None:
    with live_server(ServerConfig()) as live:
        url, ledger = f"{live.url}/health/detail", live.engine.ledger
        answer = httpx.get(url)
        assert answer.status_code == 200 and answer.json()["status"] in ("healthy", "warn")
        assert answer.json()["memory"]["total_bytes"] > 0
        ledger.core_reported(CoreStats(num_used_blocks=95, num_blocks=100))
        most = live.engine.resolved_config.scheduler.max_num_queued_requests
        open_requests(live.engine, most)
        full = httpx.get(url).json()
        assert full["status"] == "warn" and full["kv_cache"] == {"num_used_blocks": 95, "num_blocks": 100, "usage": 0.95}
        assert "95% of the KV cache" in full["reason"] and f"{most} requests wait" in full["reason"]
        assert full["requests"]["num_waiting"] == most and full["requests"]["oldest_waiting_s"] > 0
        live.engine.is_dead = True
        dead = httpx.get(url)
        assert dead.status_code == 503 and dead.json()["status"] == "dead" and "is dead" in dead.json()["reason"]
        assert httpx.post(f"{live.url}/v1/completions", json={"prompt": "x"}).status_code == 503
        live.engine.is_dead = False
        live.app.state.context.inflight.close()
        draining = httpx.get(url)
        assert draining.status_code == 503 and draining.json()["status"] == "draining"


def test_details_need_a_key_and_probes_do_not() -> None:
    with live_server(ServerConfig(api_key="k")) as live:
        codes = [httpx.get(live.url + path).status_code for path in ("/health", "/ready", "/health/detail")]
        assert codes == [200, 200, 401]
        assert httpx.get(f"{live.url}/health/detail", headers={"x-api-key": "k"}).status_code == 200


@pytest.mark.parametrize("is_abstract", [False, True])
def test_the_service_manager_hears_of_start_life_and_stop(
    smollm2_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool
) -> None:
    name = f"@octavo-{tmp_path}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        served = Served(smollm2_gguf, "--kv-cache-memory=0.0625", "--max-model-len=256")
        assert manager.recv(4096).startswith(b"READY=1")
        for _ in range(3):
            word = manager.recv(4096)
            assert word.startswith(b"WATCHDOG=1\nSTATUS=healthy: 0 requests run") or b"STATUS=warn" in word
        assert served.stop()[0] == 0
        manager.settimeout(1)
        words: list[bytes] = []
        while not words or not words[-1].startswith(b"STOPPING=1"):
            words.append(manager.recv(4096))
