"""Without the key no route answers but the probes; the admin routes have a key of their own, or are closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute, Route
from tests.fakes_server import FakeEngine
from tests.server.conftest import MODEL, LiveServer, live_server

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.server.app import create_app
from octavo.server.middleware.auth import PUBLIC_PATHS, is_admin
from octavo.server.run import check_keys

KEY = "s3cret-ключ"


@pytest.fixture(scope="module")
def guarded() -> Iterator[LiveServer]:
    with live_server(ServerConfig(api_key=KEY)) as live:
        yield live


def all_routes() -> list[tuple[str, str]]:
    """(method, path) of everything the app's router knows, documentation included."""
    app: FastAPI = create_app(FakeEngine(), ServerConfig(api_key=KEY), model_names=["m"])
    found = []
    routes: list[BaseRoute] = list(app.router.routes)
    for route in routes:
        assert isinstance(route, Route), route
        found += [(method, route.path.replace("{model_id:path}", MODEL)) for method in sorted(route.methods or ())]
    return found


def test_the_router_has_the_routes_this_test_is_about() -> None:
    paths = {path for _, path in all_routes()}
    assert {"/v1/completions", "/v1/chat/completions", "/metrics", "/docs", "/openapi.json", "/health"} <= paths


@pytest.mark.parametrize(
    ("method", "path"), all_routes() + [("GET", "/nowhere"), ("POST", "/health/x"), ("OPTIONS", "/v1/models")]
)
def test_every_route_needs_the_key(guarded: LiveServer, method: str, path: str) -> None:
    answer = httpx.request(method, guarded.url + path)
    if path in PUBLIC_PATHS:
        assert answer.status_code == 200
        return
    if is_admin(path):
        assert answer.status_code == 403
        return
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    if method != "HEAD":
        assert "no API key" in answer.text  # each protocol has a shape of its own around it


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
        if method == "GET" and not is_admin(path):
            assert httpx.get(guarded.url + path, headers=headers).status_code == 200, path


def test_public_paths_are_the_probes_alone() -> None:
    assert frozenset({"/health", "/ready"}) == PUBLIC_PATHS


ADMIN = [(method, path) for method, path in all_routes() if is_admin(path)]


def test_there_are_admin_routes() -> None:
    assert {("POST", "/admin/reconfigure"), ("GET", "/admin/memory"), ("GET", "/admin/config")} <= set(ADMIN)


@pytest.mark.parametrize("api_key", [None, KEY])
@pytest.mark.parametrize(("method", "path"), [*ADMIN, ("GET", "/admin"), ("GET", "/admin/nowhere"), ("OPTIONS", "/admin/")])
def test_without_an_admin_key_admin_routes_are_closed(method: str, path: str, api_key: str | None) -> None:
    with live_server(ServerConfig(api_key=api_key)) as live:
        for headers in ({}, {"authorization": "Bearer x"}, {b"authorization": f"Bearer {KEY}".encode()}):
            answer = httpx.request(method, live.url + path, headers=headers)
            assert answer.status_code == 403
            if method != "HEAD":
                assert answer.json()["error"]["code"] == "permission_denied" and "--admin-api-key" in answer.text


REFUSED = {"none": 401, "wrong": 401, "user": 401, "admin": 401}


@pytest.fixture(scope="module")
def two_doors() -> Iterator[LiveServer]:
    with live_server(ServerConfig(api_key=KEY, admin_api_key="adm", enable_tokenizer_info_endpoint=True)) as live:
        yield live


@pytest.mark.parametrize(("method", "path"), [*all_routes(), ("GET", "/nowhere"), ("GET", "/admin/nowhere")])
def test_each_route_opens_for_the_keys_it_is_meant_for(two_doors: LiveServer, method: str, path: str) -> None:
    """A route that someone adds is in this table at once: it is closed but for one of the two keys, or it is a probe."""
    keys = {"none": None, "wrong": "Bearer wrong", "user": f"Bearer {KEY}", "admin": "Bearer adm"}
    found = {}
    for name, key in keys.items():
        headers = {} if key is None else {b"authorization": key.encode()}
        status = httpx.request(method, two_doors.url + path, headers=headers).status_code
        found[name] = 401 if status == 401 else "opens"
    opened = set(keys) if path in PUBLIC_PATHS else {"admin"} if is_admin(path) else {"user"}
    assert found == REFUSED | dict.fromkeys(opened, "opens")


@pytest.mark.parametrize(("keys", "param"), [({"api_key": ""}, "api_key"), ({"admin_api_key": " "}, "admin_api_key")])
def test_empty_keys_are_refused(keys: dict[str, Any], param: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_keys(ServerConfig(**keys))
    assert refused.value.param == param


def test_one_key_for_both_doors_is_refused() -> None:
    with pytest.raises(ConfigError, match="every client would be an admin"):
        check_keys(ServerConfig(api_key="k", admin_api_key="k"))
