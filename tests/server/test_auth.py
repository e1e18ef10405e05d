"""Without the key no route answers but /health."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute, Route
from tests.fakes_server import FakeEngine
from tests.server.conftest import MODEL, LiveServer, live_server

from octavo.config.server import ServerConfig
from octavo.server.app import create_app
from octavo.server.middleware.auth import PUBLIC_PATHS

KEY = "s3cret-ключ"


@pytest.fixture(scope="module")
def guarded() -> Iterator[LiveServer]:
    with live_server(ServerConfig(api_key=KEY)) as live:
        yield live


def all_routes() -> list[tuple[str, str]]:
    """(method, path) of everything the app's router knows, documentation included."""
    app: FastAPI = create_app(FakeEngine(), ServerConfig(api_key=KEY), model_name="m")
    found = []
    routes: list[BaseRoute] = list(app.router.routes)
    for route in routes:
        assert isinstance(route, Route), route
        found += [(method, route.path.replace("{model_id:path}", MODEL)) for method in route.methods or ()]
    return found


def test_the_router_has_the_routes_this_test_is_about() -> None:
    paths = {path for _, path in all_routes()}
    assert {"/v1/completions", "/v1/chat/completions", "/metrics", "/docs", "/openapi.json", "/health"} <= paths


@pytest.mark.parametrize(
    ("method", "path"), all_routes() + [("GET", "/nowhere"), ("POST", "/health/"), ("OPTIONS", "/v1/models")]
)
def test_every_route_needs_the_key(guarded: LiveServer, method: str, path: str) -> None:
    answer = httpx.request(method, guarded.url + path)
    if path in PUBLIC_PATHS:
        assert answer.status_code == 200
        return
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    if method != "HEAD":
        assert answer.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", f"Basic {KEY}", KEY, f"Bearer {KEY}x", f"Bearer {KEY[:-1]}"])
def test_wrong_keys_are_refused(guarded: LiveServer, header: str) -> None:
    assert httpx.get(f"{guarded.url}/v1/models", headers={b"authorization": header.encode()}).status_code == 401


def test_two_authorization_headers_are_refused(guarded: LiveServer) -> None:
    right = (b"authorization", f"Bearer {KEY}".encode())
    assert httpx.get(f"{guarded.url}/v1/models", headers=[right, right]).status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_the_right_key_opens_every_get_route(guarded: LiveServer, scheme: str) -> None:
    headers = {b"authorization": f"{scheme} {KEY}".encode()}
    for method, path in all_routes():
        if method == "GET":
            assert httpx.get(guarded.url + path, headers=headers).status_code == 200, path


def test_public_paths_are_health_alone() -> None:
    assert frozenset({"/health"}) == PUBLIC_PATHS
