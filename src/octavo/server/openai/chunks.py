"""ChunkWriter: SSE chunks with everything constant encoded once, so that a token costs one short JSON string."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from octavo.server.openai.sampling_fields import StreamOptions
from octavo.server.service.generation import Usage
from octavo.server.service.service import Service

encode = msgspec.json.encode
_COMPLETION_DETAILS = ("reasoning_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens")


def answer_head(kind: str, request_id: str, service: Service) -> dict[str, Any]:
    """What every answer and every chunk of this request begins with; kind is its "object"."""
    return {
        "id": request_id,
        "object": kind,
        "created": int(time.time()),
        "model": service.model_name,
        "system_fingerprint": service.system_fingerprint,
    }


def usage_json(usage: Usage) -> dict[str, Any]:
    """OpenAI's "usage" object."""
    json: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    details = {name: getattr(usage, name) for name in _COMPLETION_DETAILS}
    known = {name: count for name, count in details.items() if count is not None}
    if known:
        json["completion_tokens_details"] = known
    return json


class ChunkWriter:
    """Writes the chunks of one streamed answer.

    include_usage: every chunk but the last has "usage": null (with continuous_usage_stats the usage so far), and `usage_chunk`
    makes the last. Without it no chunk has any.
    """

    def __init__(self, head: dict[str, Any], options: StreamOptions | None, *, force_usage: bool = False) -> None:
        """force_usage: include_usage, also where the request does not say so."""
        include_usage = force_usage or (options is not None and bool(options.include_usage))
        self._head = b"data: " + encode(head)[:-1] + b',"choices":['
        self.include_usage = include_usage
        self._continuous_usage = include_usage and options is not None and bool(options.continuous_usage_stats)
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"

    def chunk(self, choice: bytes, usage: Usage, more: bytes = b"") -> bytes:
        """One chunk with one choice, given as JSON. usage is the count so far, written only where it was asked for.

        more: further keys of the chunk, each with a comma before it.
        """
        if self._continuous_usage:
            return b"".join((self._head, choice, b"]", more, b',"usage":', encode(usage_json(usage)), b"}\n\n"))
        return b"".join((self._head, choice, b"]", more, self._tail))

    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk after the last choice: no choices, the whole usage."""
        return b"".join((self._head, b'],"usage":', encode(usage_json(usage)), b"}\n\n"))


def choice_json(
    index: int,
    content_key: bytes,
    content: bytes,
    logprobs: bytes,
    finish_reason: bytes,
    stop_reason: bytes,
    more: bytes = b"",
) -> bytes:
    """One choice: {"index", content_key: content, "logprobs", "finish_reason", "stop_reason"}, all parts given as JSON.

    more: further keys, each with a comma before it.
    """
    return b'{"index":%d,%b%b,"logprobs":%b,"finish_reason":%b,"stop_reason":%b%b}' % (
        index,
        content_key,
        content,
        logprobs,
        finish_reason,
        stop_reason,
        more,
    )
