"""API keys: who may ask, and whose request it then is."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from pathlib import Path

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.request import MAX_TENANT_LENGTH
from octavo.server.access.key_file import ApiKey, digest_of, read_key_file
from octavo.server.access.limits import NO_LIMITS

MAX_FILE_BYTES = 2**20
SINGLE_KEY_NAME = "default"
"""Name of the key given with --api-key beside a file of keys."""


class ApiKeys:
    """Keys by the names of their owners. Only digests are kept, and every one is compared: time tells neither length nor name.

    names_tenants  the key says whose request it is; with a single key, which has no name, the request's `user` field does
    """

    def __init__(self, keys: Sequence[ApiKey] = (), *, names_tenants: bool = False) -> None:
        self._keys = list(keys)
        self.names_tenants = names_tenants

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(self._keys)

    def find(self, key: bytes) -> ApiKey | None:
        """The entry of a key; None for a wrong key."""
        given = digest_of(key)
        found = None
        for entry in self._keys:
            if hmac.compare_digest(given, entry.digest):
                found = entry
        return found

    def take_over(self, others: ApiKeys) -> None:
        """These keys from now on, and no others."""
        self._keys, self.names_tenants = list(others), others.names_tenants


def read_api_keys(config: ServerConfig) -> ApiKeys:
    """The keys of --api-key, --api-key-file and --api-keys. Raises ConfigError naming file and place; never shows a key."""
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
    entries = [ApiKey(name, digest_of(key.encode()), NO_LIMITS) for name, key in keys.items()]
    if config.api_keys is not None:
        entries += _limited_keys(Path(config.api_keys), entries)
    if config.admin_api_key is not None:
        admin = digest_of(config.admin_api_key.encode())
        name = next((entry.name for entry in entries if entry.digest == admin), None)
        if name is not None:
            raise _error(f"the key {name!r} is also --admin-api-key: that client would be an admin")
    return ApiKeys(entries, names_tenants=len(entries) > 1 or config.api_keys is not None)


def _limited_keys(path: Path, others: Sequence[ApiKey]) -> list[ApiKey]:
    entries = read_key_file(path)
    if not entries:
        raise ConfigError(f"--api-keys {path}: has no key; `octavo keys add NAME --file {path}` makes one", param="api_keys")
    names, digests = {key.name for key in others}, {key.digest for key in others}
    for entry in entries:
        if entry.name in names or entry.digest in digests:
            raise ConfigError(f"--api-keys {path}: the key {entry.name!r} stands in --api-key-file, too", param="api_keys")
    return entries


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
