"""Another model in the place of the one that is served: staged beside it, switched in one moment, refused whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.fakes import write_model
from tests.fakes_server import FakeEngine
from tests.served import Served
from tests.server.conftest import LiveServer, live_server

from octavo.config.server import ServerConfig
from octavo.errors import LoadError
from octavo.server.app import make_service
from octavo.server.model_reload import ModelReload

ADMIN = {"authorization": "Bearer adm"}


class Staged:
    """Engines that a reload starts: each waits for `go`, and answers with the name of its path."""

    def __init__(self, live: LiveServer) -> None:
        self.live = live
        self.engines: list[FakeEngine] = []
        self.go = asyncio.Event()
        self.go.set()
        context = live.app.state.context
        live.app.state.model_reload = ModelReload(
            context, self.start, lambda engine, path: make_service(engine, context.config, [path])
        )

    async def start(self, path: str) -> FakeEngine:
        await self.go.wait()
        if path == "broken":
            raise LoadError("broken: is cut short")
        engine = FakeEngine()
        engine.answer, engine.weights_version = path, path * 12
        self.engines.append(engine)
        return engine

    def reload(self, path: str, **more: Any) -> httpx.Response:
        body = {"model_path": path, **more}
        return httpx.post(f"{self.live.url}/reload", json=body, headers=ADMIN, timeout=15)

    def ask(self) -> dict[str, Any]:
        answer = httpx.post(f"{self.live.url}/v1/completions", json={"prompt": "x"}, timeout=15)
        return {**answer.json(), "status": answer.status_code}


@pytest.fixture
def staged() -> Iterator[Staged]:
    with live_server(ServerConfig(admin_api_key="adm")) as live:
        yield Staged(live)


def test_answers_names_and_fingerprint_follow(staged: Staged) -> None:
    before = staged.ask()
    answer = staged.reload("next")
    assert answer.status_code == 200, answer.text
    after = staged.ask()
    assert after["model"] == "next" == after["choices"][0]["text"] and after["model"] == answer.json()["model"]
    assert before["system_fingerprint"] != after["system_fingerprint"] == answer.json()["system_fingerprint"]
    models = httpx.get(f"{staged.live.url}/v1/models").json()["data"]
    assert [model["id"] for model in models] == ["next"]
    while not staged.live.engine.was_shut_down:
        staged.live.run(asyncio.sleep(0))


@pytest.mark.parametrize("mode", ["drain", "abort"])
def test_a_stream_under_way_ends_as_the_mode_says(staged: Staged, mode: str) -> None:
    live, old = staged.live, staged.live.engine
    live.call(old.release.clear)
    with httpx.stream("POST", f"{live.url}/v1/completions", json={"prompt": "x", "stream": True, "max_tokens": 9}) as stream:
        lines = stream.iter_lines()
        first = next(lines)
        assert staged.reload("next", mode=mode).status_code == 200
        assert staged.ask()["choices"][0]["text"] == "next"
        if mode == "drain":
            assert not old.was_shut_down
            live.call(old.release.set)
        events = [json.loads(line[6:]) for line in [first, *lines] if line.startswith("data: {")]
    if mode == "drain":
        assert "".join(event["choices"][0]["text"] for event in events) == "Grüße f"
        assert events[-1]["choices"][0]["finish_reason"] == "length"
    else:
        assert events[-1]["error"]["code"] == "request_aborted"
    while not old.was_shut_down:
        live.run(asyncio.sleep(0))
    assert not live.app.state.context.occupancy.of(make_service(old, live.app.state.context.config, ["m"]))


def test_a_model_that_cannot_be_served_changes_nothing(staged: Staged) -> None:
    before = staged.ask()
    answer = staged.reload("broken")
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "model_path"
    assert "is cut short" in answer.text and "goes on serving" in answer.text
    after = staged.ask()
    assert (after["model"], after["system_fingerprint"]) == (before["model"], before["system_fingerprint"])
    assert not staged.live.engine.was_shut_down


def test_the_old_model_serves_while_the_new_one_loads_and_one_reload_runs_at_a_time(staged: Staged) -> None:
    staged.live.call(staged.go.clear)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(staged.reload, "next")
        while not staged.live.app.state.model_reload._is_busy:
            staged.live.run(asyncio.sleep(0))
        assert staged.ask()["model"] == "fake-model"
        second = staged.reload("other")
        assert second.status_code == 503 and second.json()["error"]["code"] == "reload_under_way"
        staged.live.call(staged.go.set)
        assert first.result().json()["model"] == "next"


@pytest.mark.parametrize(
    ("path", "mode", "param"),
    [("next", "recompute", "mode"), ("next", "now", "mode"), (" ", "drain", "model_path"), (3, "drain", "model_path")],
)
def test_what_cannot_be_is_refused_by_name(staged: Staged, path: Any, mode: str, param: str) -> None:
    answer = staged.reload(path, mode=mode)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param
    assert not staged.engines


def test_a_real_server_goes_from_dummy_weights_to_real_ones_under_load(smollm2_gguf: Path, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    arguments = ("--load-format=dummy", "--kv-cache-memory=0.0625", "--max-model-len=256", "--admin-api-key=adm")
    served = Served(folder, *arguments)
    body = {"prompt": "The capital of France is", "max_tokens": 12, "temperature": 0, "ignore_eos": True}

    def ask(**more: Any) -> httpx.Response:
        return httpx.post(f"{served.url}/v1/completions", json={**body, **more}, timeout=120)

    def reload(path: Path) -> httpx.Response:
        return httpx.post(f"{served.url}/reload", json={"model_path": str(path)}, headers=ADMIN, timeout=120)

    try:
        dummy = ask(max_tokens=100).json()["choices"][0]["text"]
        (tmp_path / "cut.gguf").write_bytes(smollm2_gguf.read_bytes()[:1_000_000])
        assert reload(tmp_path / "cut.gguf").status_code == 400
        assert ask(max_tokens=100).json()["choices"][0]["text"] == dummy
        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(ask, max_tokens=100) for _ in range(2)]
            assert reload(smollm2_gguf).status_code == 200
            assert ask().json()["choices"][0]["text"].startswith(" Paris")
            for answer in running:
                assert answer.result().status_code == 200
                assert answer.result().json()["choices"][0]["text"] == dummy
    finally:
        code, errors = served.stop()
    assert code == 0 and "Traceback" not in errors, errors
