"""What a real server listens on, what it reads again, and what it remembers when it is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.served import Served
from tests.server.conftest import live_server
from tests.server.test_key_limits import write_keys

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.server.listener import bind, bind_unix, url_of
from octavo.server.reload import Reload, Reloadable
from octavo.server.tls import tls_context

SMALL = ("--kv-cache-memory", "0.0625", "--max-model-len", "512", "--disable-log-stats")


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end_s


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, two certificates of the server, one of a client."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    make = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl(*make, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    for name in ("server", "renewed", "client"):
        names = ("-addext", "subjectAltName=IP:127.0.0.1")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:false")
        openssl(*make, *signed, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", *names)
    return folder


def client_context(certificates: Path, *, with_certificate: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    if with_certificate:
        context.load_cert_chain(certificates / "client.pem", certificates / "client.key")
    return context


def server_name(url: str, context: ssl.SSLContext) -> str:
    """Whose certificate the server shows."""
    host, port = url.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port))) as sock, context.wrap_socket(sock, server_hostname=host) as tls:
        certificate: Any = tls.getpeercert()
    return str(dict(entry[0] for entry in certificate["subject"])["commonName"])


@pytest.fixture(scope="module")
def secured(smollm2_gguf: Path, certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A server with mutual TLS and keys, and the folder of its files."""
    folder = tmp_path_factory.mktemp("secured")
    write_keys(folder / "keys.json", a={"tokens_per_day": 60})
    for end in ("key", "pem"):
        (folder / f"server.{end}").write_bytes((certificates / f"server.{end}").read_bytes())
    tls = (
        "--ssl-keyfile",
        folder / "server.key",
        "--ssl-certfile",
        folder / "server.pem",
        "--ssl-ca-certs",
        certificates / "ca.pem",
    )
    arguments = [*tls, "--ssl-cert-reqs", "2", "--api-keys", folder / "keys.json", *SMALL]
    served = Served(smollm2_gguf, *map(str, arguments))
    yield served, folder
    code, errors = served.stop()
    assert code == 0 and "Traceback" not in errors and "has no effect" not in errors, errors


def test_https_asks_clients_for_certificates_and_keys(secured: tuple[Served, Path], certificates: Path) -> None:
    served, _ = secured
    assert served.url.startswith("https://") and "key required" in served.ready_line
    context = client_context(certificates)
    with httpx.Client(verify=context, base_url=served.url) as client:
        assert client.get("/health").status_code == client.get("/ready").status_code == 200
        assert client.get("/v1/models").status_code == 401
        assert client.get("/v1/models", headers={"x-api-key": "sk-a"}).status_code == 200
        with client.stream("GET", "/health", headers={"connection": "close"}) as answer:
            assert answer.read()
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{served.url}/health", verify=client_context(certificates, with_certificate=False))
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{served.url}/health".replace("https", "http"))


def test_keys_and_certificates_are_read_again(secured: tuple[Served, Path], certificates: Path) -> None:
    served, folder = secured
    context = client_context(certificates)

    def status(key: str) -> int:
        return httpx.get(f"{served.url}/v1/models", headers={"x-api-key": key}, verify=context).status_code

    write_keys(folder / "keys.json", a={"tokens_per_day": 60}, b={})
    served.process.send_signal(signal.SIGHUP)
    until(lambda: status("sk-b") == 200)
    write_keys(folder / "keys.json", b={"tokens_per_day": 0})  # wrong: what was good stays
    served.process.send_signal(signal.SIGHUP)
    assert status("sk-a") == 200
    write_keys(folder / "keys.json", a={"tokens_per_day": 60})
    until(lambda: status("sk-b") == 401)  # seen without a signal
    assert server_name(served.url, context) == "server"
    for end in ("key", "pem"):
        (folder / f"server.{end}").write_bytes((certificates / f"renewed.{end}").read_bytes())
    until(lambda: server_name(served.url, context) == "renewed")


def test_what_a_killed_server_gave_is_never_more_than_its_keys_allow(smollm2_gguf: Path, tmp_path: Path) -> None:
    """Through a Unix socket: what clients got, before and after the kill, is within the limit of the day."""
    write_keys(tmp_path / "keys.json", a={"tokens_per_day": 60})
    path, body = str(tmp_path / "socket"), {"prompt": [1, 2, 3, 4, 5], "max_tokens": 20, "ignore_eos": True}
    headers, given = {"authorization": "Bearer sk-a"}, 0
    for is_killed in (True, False):
        served = Served(smollm2_gguf, "--uds", path, "--api-keys", str(tmp_path / "keys.json"), *SMALL)
        assert f"http+unix:{path}" in served.ready_line
        with httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://x", headers=headers, timeout=60) as client:
            if is_killed:
                given += client.post("/v1/completions", json=body).json()["usage"]["total_tokens"]
                with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as stream:
                    given += 6 if "data: " in next(stream.iter_lines()) else 0
                    core = served.core_pid
                    served.process.kill()
                os.kill(core, signal.SIGKILL)
                served.wait()
            else:
                last = client.post("/v1/completions", json=body)
                given += last.json()["usage"]["total_tokens"]
                assert last.json()["choices"][0]["stop_reason"] == "token_quota"
                assert client.post("/v1/completions", json=body).status_code == 429
                with pytest.raises(ConfigError, match="a server listens there"):
                    bind_unix(path)
                assert served.stop()[0] == 0
    # 25, 25 that were reserved when it was killed, and the 10 that were left.
    assert given == 25 + 6 + 10
    assert not Path(path).exists()


def test_a_file_in_place_of_a_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "none" / "socket", tmp_path / ("x" * 200)):
        with pytest.raises(ConfigError, match="--uds"):
            bind_unix(str(path))
    assert (tmp_path / "file").read_text() == "mine"


def test_ipv6_is_served_and_shown_in_brackets() -> None:
    try:
        sock = bind("::1", 0)
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    with sock:
        assert url_of(sock, "https") == f"https://[::1]:{sock.getsockname()[1]}"


def test_wrong_tls_files_are_named(certificates: Path, tmp_path: Path) -> None:
    certificate, key = str(certificates / "server.pem"), str(certificates / "server.key")
    wrong: list[dict[str, Any]] = [
        {"ssl_keyfile": key},
        {"ssl_certfile": certificate, "ssl_keyfile": str(certificates / "client.key")},
        {"ssl_certfile": str(tmp_path / "none"), "ssl_keyfile": key},
        {"ssl_certfile": certificate, "ssl_keyfile": key, "ssl_ca_certs": str(tmp_path / "none")},
        {"ssl_certfile": certificate, "ssl_keyfile": key, "ssl_cert_reqs": 2},
    ]
    for options in wrong:
        with pytest.raises(ConfigError, match="--ssl"):
            tls_context(ServerConfig(**options))
    assert tls_context(ServerConfig()) is None


def test_a_file_is_read_again_when_it_changes_and_not_before(tmp_path: Path) -> None:
    path, reads = tmp_path / "file", []

    def read() -> None:
        reads.append(path.exists())
        if len(reads) == 2:
            raise ConfigError("broken")

    reload = Reload([Reloadable("file", [str(path)], read)])
    for text in ("one", "three", "three"):
        path.write_text(text)
        reload.look()
        reload.look()
    assert reads == [True] * 3
    path.unlink()
    reload.look()
    reload.on_signal()
    assert reads == [True] * 3 + [False] * 2


def test_metrics_can_be_opened(tmp_path: Path) -> None:
    write_keys(tmp_path / "keys.json", a={})
    for is_open in (False, True):
        with live_server(ServerConfig(api_keys=str(tmp_path / "keys.json"), metrics_without_key=is_open)) as live:
            assert httpx.get(f"{live.url}/metrics").status_code == (200 if is_open else 401)
            assert json.loads(httpx.get(f"{live.url}/ready").text) == {"status": "ready"}
