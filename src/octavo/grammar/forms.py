"""Forms: what requests ask their answers to be like, checked and turned into grammars; kept by content."""

from __future__ import annotations

import threading
from collections import OrderedDict

import msgspec

from octavo.errors import BusyError, InvalidRequestError, OctavoError
from octavo.sandbox.pool import NoAnswerError, ProcessPool
from octavo.structured_outputs import StructuredOutputsParams

CHECK_S = 2.0
MAX_PROCESSES = 2
MAX_ANSWER_BYTES = 8 << 20
MAX_KEPT = 256
MAX_KEPT_BYTES = 32 << 20
_ASKS_FOR_NOTHING = StructuredOutputsParams()


class Refusal(msgspec.Struct):
    """An InvalidRequestError on its way from another process."""

    message: str
    param: str | None
    code: str


class Forms:
    """Checks in processes that can be killed: what a client sends may take for ever to look at, and all memory there is.

    Safe to use from several threads. No process is started before the first form.
    check_s  seconds that one form may take
    """

    def __init__(self, *, check_s: float = CHECK_S) -> None:
        self._check_s = check_s
        self._pool = ProcessPool(
            "octavo.grammar.child", None, seconds=check_s, max_processes=MAX_PROCESSES, max_answer_bytes=MAX_ANSWER_BYTES
        )
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, str | Refusal] = OrderedDict()
        self._kept_bytes = 0

    def is_known(self, params: StructuredOutputsParams) -> bool:
        """Whether `grammar` answers at once."""
        with self._lock:
            return params == _ASKS_FOR_NOTHING or _key(params) in self._kept

    def grammar(self, params: StructuredOutputsParams) -> str:
        """The grammar, "" if nothing is asked for. Raises InvalidRequestError naming the field, or BusyError."""
        if params == _ASKS_FOR_NOTHING:
            return ""
        key = _key(params)
        with self._lock:
            outcome = self._kept.get(key)
            if outcome is not None:
                self._kept.move_to_end(key)
        if outcome is None:
            outcome = self._ask(key, params)
            self._keep(key, outcome)
        if isinstance(outcome, Refusal):
            raise InvalidRequestError(outcome.message, param=outcome.param, code=outcome.code)
        return outcome

    def close(self) -> None:
        """End the processes. Safe to call twice."""
        self._pool.close()

    def _ask(self, key: bytes, params: StructuredOutputsParams) -> str | Refusal:
        try:
            kind, text = self._pool.ask(key)
        except NoAnswerError as error:
            raise self._no_answer(error, params) from None
        return text if kind == "text" else msgspec.json.decode(text, type=Refusal)

    def _keep(self, key: bytes, outcome: str | Refusal) -> None:
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = outcome
            self._kept_bytes += _size(key, outcome)
            while self._kept and (len(self._kept) > MAX_KEPT or self._kept_bytes > MAX_KEPT_BYTES):
                self._kept_bytes -= _size(*self._kept.popitem(last=False))

    def _no_answer(self, error: NoAnswerError, params: StructuredOutputsParams) -> OctavoError:
        param = f"structured_outputs.{params.form}"
        if error.cause in ("busy", "closed", "start"):
            why = {
                "busy": "others are being checked; try again later",
                "closed": "the engine is shut down",
                "start": f"no process could be started ({error.detail})",
            }[error.cause]
            return BusyError(f"{param} could not be checked: {why}", param=param)
        why = "takes too much memory to check" if error.cause == "ended" else f"takes longer than {self._check_s:g} s to check"
        message = f"{param} {why}; make it smaller or simpler"
        return InvalidRequestError(message, param=param, code="structured_output_too_complex")


def _key(params: StructuredOutputsParams) -> bytes:
    """The content as JSON. The order of a schema's properties is part of it: answers have the same."""
    try:
        return msgspec.json.encode(params)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        param = f"structured_outputs.{params.form}"
        raise InvalidRequestError(f"{param} cannot be written as JSON: {str(error)[:200]}", param=param) from None


def _size(key: bytes, outcome: str | Refusal) -> int:
    return len(key) + len(outcome if isinstance(outcome, str) else outcome.message)
