"""The one error tree: every fault a user can meet carries a status, a code and the parameter it is about.

The API process turns an `OctavoError` into an HTTP answer in OpenAI's error shape; the command line turns it into one line
on stderr and an exit code. Messages give the value, the limit and the way out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_NEAR = 0.75
"""Likeness from which a name is taken for a misspelt one: with less, hints name things that have nothing to do with it."""


_MAX_LINE = 1000
DEAD_END = "the form of the answer cannot be kept: "
"""How the reason begins when a request fails because its form allows nothing, or too much at once, amid the answer."""


class OctavoError(Exception):
    """Base of all errors octavo raises on purpose.

    Attributes: `status` HTTP status, `code` a stable machine-readable word, `type` OpenAI's error type, `param` the request
    field or flag the error is about (None if there is none), `exit_code` what the command line returns.
    """

    status: int = 500
    code: str = "internal_error"
    type: str = "server_error"
    exit_code: int = 1

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code


class InvalidRequestError(OctavoError, ValueError):
    """A request field is malformed, out of range or contradicts another one."""

    status = 400
    code = "invalid_value"
    type = "invalid_request_error"
    exit_code = 2


class ContextLengthError(InvalidRequestError):
    """The prompt does not fit the model's context with at least one token of an answer."""

    code = "context_length_exceeded"

    @classmethod
    def of(cls, found: str, limit: int, param: str) -> ContextLengthError:
        """found: what was given, as the subject of a sentence. The words before it are those that clients look for."""
        return cls(
            f"this model's maximum context length is {limit} tokens, one of them for the answer; {found}. Shorten the {param}, "
            "or start the server with a larger --max-model-len if the model allows it",
            param=param,
        )

    @classmethod
    def of_prompt(cls, found: str, limit: int, param: str, cut: str) -> ContextLengthError:
        """The same where no answer follows the prompt. cut: the field, with its value, that has a long one cut."""
        return cls(
            f"this model's maximum context length is {limit} tokens; {found}. Shorten the {param}, or set {cut} to use its "
            "beginning only",
            param=param,
        )


class NotFoundError(OctavoError):
    """An unknown model or route was named."""

    status = 404
    code = "not_found"
    type = "invalid_request_error"
    exit_code = 2


class AuthenticationError(OctavoError):
    """The API key is missing or wrong."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"


class PermissionDeniedError(OctavoError):
    """The route exists but this server does not open it."""

    status = 403
    code = "permission_denied"
    type = "permission_error"


class OverloadedError(OctavoError):
    """The queue is full; the client should come back after `retry_after_s` seconds."""

    status = 429
    code = "overloaded"
    type = "rate_limit_error"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineDeadError(OctavoError):
    """The engine process ended while the request ran, or is not up."""

    status = 503
    code = "engine_unavailable"
    type = "server_error"


class BusyError(OctavoError):
    """All the processes that this part of a request needs are at work for others; later they are not."""

    status = 503
    code = "busy"


class RequestFailedError(OctavoError):
    """Handling this one request raised inside the engine; its neighbours are untouched."""

    status = 500
    code = "request_failed"


def request_failure(reason: str) -> OctavoError:
    """What to raise for a request that has failed while it ran. A form that leaves no way on is the request's own fault."""
    if reason.startswith(DEAD_END):
        return InvalidRequestError(reason, param="structured_outputs", code="structured_output_dead_end")
    return RequestFailedError(f"the request failed in the engine: {reason}")


class ConfigError(OctavoError, ValueError):
    """A flag, setting or combination of settings cannot work. The message names the flag and the fix."""

    status = 400
    code = "invalid_config"
    type = "invalid_request_error"
    exit_code = 2


class LoadError(OctavoError):
    """A model file is missing, damaged or of an unsupported kind. The message names the file and the tensor or key."""

    code = "load_error"
    exit_code = 2

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        """One line of a bounded length, whatever names of tensors and texts of libraries are in it."""
        line = " ".join(message.splitlines())
        super().__init__(line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + " ...", param=param, code=code)


def not_enough_memory(error: MemoryError) -> str:
    """A MemoryError in words, with the ways out."""
    detail = f" ({error})" if str(error) else ""
    return (
        f"not enough memory{detail}: end other programs, raise the limit (ulimit -v, the container's), lower "
        "--kv-cache-memory, or take a smaller model"
    )


def did_you_mean(name: str, known: Iterable[object], prefix: str = "") -> str:
    """ "; did you mean X?" with the known name that is near, or "" if none is."""
    near = difflib.get_close_matches(name[:100], [str(word) for word in known], n=1, cutoff=_NEAR)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
