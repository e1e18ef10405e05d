"""The file of --api-keys: names, hashes of keys and their limits, as TOML or JSON. `octavo keys` writes it.

```toml
[keys.acme]
hash = "sha256:..."
tokens_per_day = 100000
```
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from octavo.errors import ConfigError
from octavo.server.access.limits import KeyLimits, limits_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_FILE_BYTES = 2**20
MAX_KEYS = 4096
KEY_PREFIX = "sk-octavo-"
NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_HEAD = "# Written by `octavo keys`, which writes it anew with every change: comments are lost then.\n"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key. digest: SHA-256 of the key; the key itself is kept nowhere."""

    name: str
    digest: bytes
    limits: KeyLimits

    @property
    def tenant(self) -> str:
        return self.limits.tenant or self.name


def new_key() -> str:
    """A key of 256 random bits: its hash needs no salt, for there is nothing to guess."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def digest_of(key: bytes) -> bytes:
    return sha256(key).digest()


def read_key_file(path: Path) -> list[ApiKey]:
    """The keys of a file. Raises ConfigError naming file, key and limit."""
    entries = _read(path).get("keys", {})
    if not isinstance(entries, dict) or len(entries) > MAX_KEYS:
        raise _error(f"{path}: keys must be a table of at most {MAX_KEYS} keys")
    keys = [_key_of(name, values, f"{path}: key {name[:100]!r}") for name, values in entries.items()]
    if len({key.digest for key in keys}) < len(keys):
        raise _error(f"{path}: two names have the same hash")
    return keys


def write_key_file(path: Path, keys: list[ApiKey]) -> None:
    """Put a new file in the place of the old one, readable for its owner alone. Raises ConfigError."""
    entries = {key.name: _entry(key) for key in keys}
    text = json.dumps({"keys": entries}, indent=2) + "\n" if _is_json(path) else _toml(entries)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise
    except OSError as error:
        raise _error(f"{path}: cannot be written: {error.strerror or error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise _error(f"{path}: has more than {MAX_FILE_BYTES} bytes")
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _error(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        values = json.loads(text) if _is_json(path) else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "JSON" if _is_json(path) else "TOML"
        raise _error(f"{path}: is no {kind}: {error}") from None
    if not isinstance(values, dict) or set(values) - {"keys"}:
        raise _error(f"{path}: must hold one table, keys")
    return values


def check_name(name: str, place: str) -> None:
    """Raise ConfigError for a name that no key may have."""
    if not NAME.fullmatch(name):
        raise _error(f"{place}: a name has 1 to 64 letters, digits and . _ @ -")


def _key_of(name: str, values: Any, place: str) -> ApiKey:
    check_name(name, place)
    match = _HASH.fullmatch(str(values.get("hash"))) if isinstance(values, dict) else None
    if match is None:
        raise _error(f"{place}: hash must be sha256: and 64 hex digits; `octavo keys add` makes one")
    limits = {limit: value for limit, value in values.items() if limit != "hash"}
    return ApiKey(name, bytes.fromhex(match[1]), limits_of(limits, place))


def _entry(key: ApiKey) -> dict[str, Any]:
    values: dict[str, Any] = {"hash": f"sha256:{key.digest.hex()}"}
    for field in fields(KeyLimits):
        value = getattr(key.limits, field.name)
        if value is not None and value != ():
            values[field.name] = list(value) if isinstance(value, tuple) else value
    return values


def _toml(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """TOML writes our texts, numbers and lists of texts as JSON does."""
    lines = [_HEAD]
    for name, values in entries.items():
        lines.append(f'[keys."{name}"]\n')
        for limit, value in values.items():
            shown = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            lines.append(f"{limit} = {shown}\n")
        lines.append("\n")
    return "".join(lines)


def _is_json(path: Path) -> bool:
    return path.suffix.lower() == ".json"


def _error(problem: str) -> ConfigError:
    return ConfigError(f"--api-keys {problem}", param="api_keys")
