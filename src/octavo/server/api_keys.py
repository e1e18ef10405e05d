"""API keys: who may ask, and whose request it then is."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.request import MAX_TENANT_LENGTH

MAX_FILE_BYTES = 2**20
SINGLE_KEY_NAME = "default"
"""Name of the key given with --api-key beside a file of keys."""


class ApiKeys:
    """Keys by the names of their owners. Only digests are kept, and every one is compared: time tells neither length nor name.

    names_tenants  with several keys, the key says whose request it is; with one, the request's `user` field does
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._digests = [(name, hashlib.sha256(key.encode()).digest()) for name, key in keys.items()]
        self.names_tenants = len(keys) > 1

    def __len__(self) -> int:
        return len(self._digests)

    def owner(self, key: bytes) -> str | None:
        """Name of the owner; None for a wrong key."""
        given = hashlib.sha256(key).digest()
        found = None
        for name, digest in self._digests:
            if hmac.compare_digest(given, digest):
                found = name
        return found


def read_api_keys(config: ServerConfig) -> ApiKeys:
    """The key of --api-key and those of --api-key-file. Raises ConfigError naming file and line; never shows a key."""
    keys: dict[str, str] = {}
    if config.api_key is not None:
        keys[SINGLE_KEY_NAME] = config.api_key
    if config.api_key_file is not None:
        path = Path(config.api_key_file)
        try:
            with path.open("rb") as file:
                text = file.read(MAX_FILE_BYTES + 1).decode()
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise _error(f"{path}: cannot be read: {error}") from None
        if len(text) > MAX_FILE_BYTES:
            raise _error(f"{path}: has more than {MAX_FILE_BYTES} bytes")
        for number, line in enumerate(text.splitlines(), 1):
            _take_line(keys, line.split(), f"{path}:{number}")
        if not keys:
            raise _error(f"{path}: has no key; write one 'NAME KEY' per line")
    if config.admin_api_key in keys.values():
        raise _error(f"{config.api_key_file}: has the key of --admin-api-key: that client would be an admin")
    return ApiKeys(keys)


def _take_line(keys: dict[str, str], words: list[str], place: str) -> None:
    if not words or words[0].startswith("#"):
        return
    if len(words) != 2 or len(words[0]) > MAX_TENANT_LENGTH:
        raise _error(f"{place}: a line must be 'NAME KEY', both without spaces")
    name, key = words
    if name in keys:
        raise _error(f"{place}: the name {name!r} stands twice (--api-key has the name {SINGLE_KEY_NAME!r})")
    if key in keys.values():
        raise _error(f"{place}: this key has been given to another name already")
    keys[name] = key


def _error(problem: str) -> ConfigError:
    return ConfigError(f"--api-key-file {problem}", param="api_key_file")
