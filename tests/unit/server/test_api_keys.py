"""API keys and their owners."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.server.api_keys import read_api_keys


def keys_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "keys"
    path.write_text(text)
    return str(path)


def test_without_any_key_the_server_is_open() -> None:
    assert len(read_api_keys(ServerConfig())) == 0


def test_one_key_names_no_tenant_and_several_do(tmp_path: Path) -> None:
    assert not read_api_keys(ServerConfig(api_key="s3cret")).names_tenants
    keys = read_api_keys(
        ServerConfig(api_key="s3cret", api_key_file=keys_file(tmp_path, "# team keys\n\nacme k1\n beta  k2 \n"))
    )
    assert keys.names_tenants and len(keys) == 3
    found = [keys.find(key) for key in (b"s3cret", b"k1", b"k2", b"k3", b"")]
    assert [entry and entry.name for entry in found] == ["default", "acme", "beta", None, None]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("acme", ":1: a line must be"),
        ("acme k1 k2", ":1: a line must be"),
        ("acme k1\nacme k2", ":2: the name 'acme' stands twice"),
        ("acme k1\nbeta k1", ":2: this key has been given"),
        ("default k1", ":1: the name 'default' stands twice"),
        ("# nothing\n", "has no key"),
    ],
)
def test_a_fault_names_file_and_line_and_shows_no_key(tmp_path: Path, text: str, problem: str) -> None:
    config = ServerConfig(api_key="s3cret" if "default" in text else None, api_key_file=keys_file(tmp_path, text))
    with pytest.raises(ConfigError) as caught:
        read_api_keys(config)
    assert problem in caught.value.message and "k1" not in caught.value.message


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_api_keys(ServerConfig(api_key_file=str(tmp_path / "none")))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_api_keys(ServerConfig(api_key_file=str(tmp_path / "bytes")))
