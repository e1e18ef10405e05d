"""The file of --api-keys, and the command that writes it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from octavo.cli.main import run
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.server.access.key_file import read_key_file
from octavo.server.api_keys import read_api_keys

HASH = "sha256:" + "0" * 64


@pytest.mark.parametrize("name", ["keys.toml", "keys.json"])
def test_a_key_is_added_listed_and_revoked(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / name
    assert (
        run(["keys", "add", "acme", "--file", str(path), "--tokens-per-day", "100", "--route", "/v1/*", "--weight", "2.5"]) == 0
    )
    key = capsys.readouterr().out.strip()
    assert run(["keys", "add", "beta", "--file", str(path), "--min_priority", "0", "--model", 'od"d ü']) == 0
    capsys.readouterr()
    assert key not in path.read_text() and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run(["keys", "list", "--file", str(path)]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed == ["acme routes=/v1/* tokens_per_day=100 weight=2.5", 'beta models=od"d ü min_priority=0']
    found = read_api_keys(ServerConfig(api_keys=str(path)))
    entry = found.find(key.encode())
    assert entry is not None and entry.name == entry.tenant == "acme" and found.names_tenants
    assert entry.limits.opens("/v1/models") and not entry.limits.opens("/tokenize")
    assert run(["keys", "revoke", "acme", "--file", str(path)]) == 0
    assert read_api_keys(ServerConfig(api_keys=str(path))).find(key.encode()) is None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["add", "acme"], "has a key 'acme' already"),
        (["add", "a b"], "a name has 1 to 64"),
        (["add", "new", "--max-tokens", "0"], "max_tokens is 0"),
        (["add", "new", "--route", "v1"], "a route begins with /"),
        (["add", "new", "--weight", "0"], "weight is 0"),
        (["revoke", "nobody"], "has no key 'nobody'; it has acme"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    tmp_path: Path, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys.toml"
    assert run(["keys", "add", "acme", "--file", str(path)]) == 0
    before = path.read_bytes()
    assert run(["keys", *arguments, "--file", str(path)]) == 2
    assert problem in capsys.readouterr().err and path.read_bytes() == before


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"hash": "secret"}, "hash must be sha256:"),
        ({"hash": HASH, "max_token": 3}, "no limit 'max_token'; did you mean max_tokens?"),
        ({"hash": HASH, "models": "m"}, "models must be a list"),
        ({"hash": HASH, "routes": [1]}, "routes must be a list"),
        ({"hash": HASH, "tokens_per_day": True}, "tokens_per_day is True"),
        ({"hash": HASH, "tokens_per_minute": 1.5}, "tokens_per_minute is 1.5"),
        ({"hash": HASH, "tenant": ""}, "tenant must be a text"),
        (3, "hash must be sha256:"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, values: object, problem: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": {"acme": values}}))
    with pytest.raises(ConfigError) as caught:
        read_key_file(path)
    assert problem in caught.value.message and "'acme'" in caught.value.message


@pytest.mark.parametrize("text", ["[", "[other]\n", "keys = 3\n", '[keys."a"]\n[keys."a"]\n'])
def test_a_file_that_is_no_table_of_keys_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="keys.toml"):
        read_key_file(path)


def test_names_and_keys_stand_once(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": {"a": {"hash": HASH}, "b": {"hash": HASH}}}))
    with pytest.raises(ConfigError, match="same hash"):
        read_key_file(path)
    path.write_text(json.dumps({"keys": {"default": {"hash": HASH}}}))
    with pytest.raises(ConfigError, match="stands in"):
        read_api_keys(ServerConfig(api_key="k", api_keys=str(path)))
    path.write_text("{}")
    with pytest.raises(ConfigError, match="has no key"):
        read_api_keys(ServerConfig(api_keys=str(path)))
