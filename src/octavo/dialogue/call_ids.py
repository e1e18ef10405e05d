"""Ids of tool calls: fresh ones, and what becomes of those that a template does not take."""

from __future__ import annotations

import hashlib
import re
import secrets
import string

_ALPHANUMERIC = string.digits + string.ascii_letters
_SHORT_LENGTH = 9
_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")


def new_call_id() -> str:
    """A fresh id in OpenAI's shape."""
    return "call_" + _random(24)


def new_short_id() -> str:
    """Nine letters and digits, as Mistral's templates ask for."""
    return _random(_SHORT_LENGTH)


def short_id(given: str) -> str:
    """given if it has nine letters and digits, else nine that are a function of it."""
    if _SHORT_ID.fullmatch(given):
        return given
    digest = hashlib.sha256(given.encode("utf-8", "surrogatepass")).digest()
    return "".join(_ALPHANUMERIC[byte % len(_ALPHANUMERIC)] for byte in digest[:_SHORT_LENGTH])


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(length))
