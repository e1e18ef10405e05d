"""Hostile HTTP requests, each a function of a seed: valid ones of every route, damaged in their JSON, bytes or HTTP."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass
from typing import Any

from tests.fuzz.mutations import NUMBERS, ODD, TEMPLATES, damage_bytes, damage_json

ADMIN_KEY = "admin-key"
"""Of the server that is fuzzed: its admin routes are open to whoever has it."""
USER = {"role": "user", "content": "ab h\u00e9llo"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
SAMPLING: dict[str, Any] = {
    **{"model": "m", "max_tokens": 4, "temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.01, "seed": 7, "n": 2},
    **{"repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.5, "stop": ["zz"], "stop_token_ids": [9]},
    **{"logit_bias": {"5": 1.5}, "bad_words": ["ab"], "min_tokens": 1, "prompt_logprobs": None, "priority": 0, "user": "u"},
    **{"stream": True, "stream_options": {"include_usage": True}, "timeout": 10, "cache_salt": "s", "ignore_eos": True},
    **{"skip_special_tokens": False, "include_stop_str_in_output": True, "response_format": {"type": "text"}},
}
CHAT: dict[str, Any] = {
    "messages": [{"role": "system", "content": "ab"}, USER, {"role": "assistant", "content": None, "tool_calls": []}, USER],
    **{"tools": [TOOL], "tool_choice": "none", "logprobs": True, "top_logprobs": 2, "chat_template_kwargs": {"a": 1}},
    **{"add_generation_prompt": True, "continue_final_message": False},
}
OPTIONS = {"num_predict": 4, "temperature": 0.7, "top_k": 20, "seed": 7, "stop": ["zz"], "repeat_penalty": 1.1, "num_ctx": 64}
OLLAMA: dict[str, Any] = {
    **{"model": "m:latest", "options": OPTIONS, "stream": True, "keep_alive": "5m", "format": "json", "think": False},
    **{"logprobs": True, "top_logprobs": 2},
}
EXTRA = {
    name: SAMPLING[name] for name in ("model", "temperature", "top_k", "seed", "logit_bias", "bad_words", "stream", "timeout")
}
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}}
ITEMS: dict[str, Any] = {
    "input": [
        *(
            {"role": "user", "content": [{"type": "input_text", "text": "ab"}]},
            {"type": "reasoning", "summary": [], "content": []},
        ),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "cd", "annotations": []}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "ef"},
    ],
    **{"instructions": "ab", "tools": [{"type": "function", "name": "f", "parameters": OBJECT}], "tool_choice": "none"},
    **{"parallel_tool_calls": False, "reasoning": {"effort": "low", "summary": "auto"}, "max_output_tokens": 4, "store": False},
    **{"text": {"format": {"type": "text"}}, "metadata": {"a": "b"}, "truncation": "disabled", "user": "u", "min_p": 0.01},
}
BLOCKS: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "ab", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                *({"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "cd"}),
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ef", "is_error": True}]},
    ],
    **{
        "system": [{"type": "text", "text": "ab"}],
        "tools": [{"name": "f", "input_schema": OBJECT}],
        "tool_choice": {"type": "none"},
    },
    **{"thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "low"}, "model": "m"},
}
RECONFIGURE = {"max_num_seqs": 16, "max_num_batched_tokens": 256, "scheduler_policy": "fcfs", "block_size": 16}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": ["ab", "cd"], "logprobs": 2, "echo": True, "best_of": 2, **SAMPLING},
    "/v1/chat/completions": {**CHAT, **SAMPLING},
    "/v1/embeddings": {
        **{"model": "m", "input": ["ab", "c"], "dimensions": 3, "encoding_format": "base64", "user": "u", "cache_salt": "s"},
        **{"truncate_prompt_tokens": 4, "normalize": False, "use_activation": False, "add_special_tokens": True},
    },
    "/v1/rerank": {"model": "m", "query": "ab", "documents": ["c", {"text": "d"}], "top_n": 1, "return_documents": False},
    "/v1/score": {"model": "m", "text_1": "ab", "text_2": ["c", "d"], "normalize": True, "truncate_prompt_tokens": -1},
    "/v1/chat/completions/render": {**CHAT, **SAMPLING},
    "/api/chat": {"messages": [USER], "tools": [], **OLLAMA},
    "/api/generate": {"prompt": "ab", "system": "cd", "raw": False, "images": [], "context": [], **OLLAMA},
    "/api/show": {"model": "m", "name": "m", "verbose": True},
    "/api/embed": {"model": "m", "input": ["ab", "cd"], "truncate": True, "dimensions": 4, "keep_alive": 5},
    "/v1/responses": {**ITEMS, **EXTRA},
    "/v1/messages": {**BLOCKS, **EXTRA, "max_tokens": 4, "stop_sequences": ["zz"], "metadata": {"user_id": "u"}},
    "/v1/messages/count_tokens": BLOCKS,
    "/tokenize": {"model": "m", "prompt": "ab", "add_special_tokens": True, "return_token_strs": True},
    "/detokenize": {"model": "m", "tokens": [3, 4, 260]},
    "/admin/reconfigure": RECONFIGURE,
}
PATHS = ["/v1/models", "/v1/models/m", "/health", "/ready", "/metrics", "/load", "/version", "/tokenizer_info", "/admin/config"]
PATHS += ["/admin/memory", "/openapi.json", "/docs", "/", "/nothing", "/api/tags", "/api/ps", "/api/version", "/api/pull"]
TEXTS = [
    "\ud800",
    "a\udfffb",
    "\u0000",
    "\u202e",
    "\u2028",
    "e\u0301" * 400,
    "\U0001f468\u200d\U0001f469" * 99,
    "\ufeff",
    "<s>",
]
TYPES = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/json; charset=utf-16",
]
TYPES += ["", "application/json;;;", "\xff/\xfe", "application/" + "j" * 5000]
HEADERS = [
    *(
        "Expect: 100-continue",
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk",
        "Cookie: " + "a" * 9000,
    ),
    *(
        "X-Request-Id: " + "r" * 5000,
        "X-Request-Id: \xff\xfe",
        "X-Request-Id:",
        "Authorization: Bearer",
        "Authorization: Basic \xff",
    ),
    *(
        "X-Tenant: " + "t" * 300,
        "Host: evil\r\nHost: other",
        "Content-Encoding: gzip",
        "Accept-Encoding: br",
        "Range: bytes=0-1",
    ),
    *(
        "Origin: null",
        "X-Forwarded-For: " + "1.1.1.1, " * 400,
        "X-Forwarded-Proto: \x01",
        "No-Colon",
        ": empty",
        "A b: c",
        " folded: x",
    ),
    *("\r\n".join(f"X-{index}: y" for index in range(300)), "Transfer-Encoding: identity", "Transfer-Encoding: gzip, chunked"),
    *("Content-Length: 5", "Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 1e3", "TE: trailers"),
]
TARGETS = [
    "//",
    "/v1//completions",
    "/../../etc/passwd",
    "/v1/models/%00",
    "/v1/models/%ff%fe",
    "/v1/models/" + "a" * 9000,
    "*",
]
TARGETS += [
    "http://other/v1/models",
    "/v1/models?" + "a=b&" * 999,
    "/v1/models/..%2f..",
    "/v1/completions/",
    "/\xff",
    "/a b",
    "",
]
METHODS = ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "get", "POST", "GET", "BREW", "P" * 3000, "G\x00T"]


@dataclass(frozen=True)
class Hostile:
    """What goes over the socket.

    pieces         sent one after the other; then the writing side is closed if `ends`
    must_answer    the HTTP is whole and right, so that silence is a fault
    what           for messages
    """

    pieces: tuple[bytes, ...]
    ends: bool
    must_answer: bool
    what: str


def hostile(seed: int) -> Hostile:
    """One request. Most are damaged in their JSON, for that goes deepest."""
    rng = random.Random(f"http {seed}")
    path = rng.choice([*BODIES, "/v1/completions", "/v1/chat/completions", "/v1/chat/completions"])
    kind = rng.choice(
        [*["fields"] * 6, "text", "text", "bytes", "type", "chunks", "chunks", "cut", "headers", "headers", "target"]
    )
    if kind == "target":
        return _odd_target(rng)
    body = {name: value for name, value in BODIES[path].items() if name in _NEEDED or rng.random() < 0.4}
    if path == "/admin/reconfigure" and kind not in ("fields", "text", "bytes"):
        body = {"max_num_seqs": None}  # what is merely sent oddly must not really change the server
    if kind == "fields":
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            body = damage_json(body, rng, [*NUMBERS, *ODD, *TEMPLATES, *TEXTS, "5", "5.0", 5.0, -5, 2**53, "NaN"])
    raw = _dump(body, rng)
    if kind == "text":
        raw = _odd_text(raw, rng)
    elif kind == "bytes":
        raw = damage_bytes(raw, rng, len(raw))
    what = f"{kind} {path}"
    if kind in ("chunks", "cut"):
        return _odd_framing(path, raw, rng, what)
    headers = [rng.choice(HEADERS) for _ in range(rng.randint(1, 2))] if kind == "headers" else []
    media = rng.choice(TYPES) if kind == "type" else "application/json"
    if "Content-Encoding: gzip" in headers:
        raw = rng.choice([gzip.compress(raw), gzip.compress(bytes(1 << 24)), raw])
    message = _head("POST", path, [f"Content-Type: {media}", f"Content-Length: {len(raw)}", *headers]) + raw
    return Hostile((message,), kind == "headers", kind not in ("headers", "type"), what)


_NEEDED = (
    *("prompt", "messages", "input", "tokens", "max_tokens", "max_output_tokens", "options"),
    *("query", "documents", "text_1", "text_2"),
)


def _head(method: str, target: str, headers: list[str]) -> bytes:
    lines = [
        f"{method} {target} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        f"Authorization: Bearer {ADMIN_KEY}",
        *headers,
    ]
    if not target.startswith("/admin"):
        del lines[3]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _dump(body: Any, rng: random.Random) -> bytes:
    """JSON in one of its spellings; lone surrogates are written as escapes or as bytes that are no UTF-8."""
    text = json.dumps(body, ensure_ascii=rng.random() < 0.5, default=str)
    return text.encode("utf-8", "surrogatepass")


def _odd_text(raw: bytes, rng: random.Random) -> bytes:
    """What a JSON reader may stumble over and json.dumps does not write."""
    depth = rng.choice([50, 2000, 100_000])
    nested = [b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth, b"[" * depth]
    twice = b'{"prompt":"a","max_tokens":-1,"messages":[],' + raw[1:]
    odd = rng.choice(
        [b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"-0", b"01", b"0x1", b'"\\ud800"', b"'a'", b"\xff", *nested]
    )
    choices = [
        twice,
        raw[:-1] + b',"max_tokens":' + odd + b"}",
        raw[:-1] + b',"x":' + odd + b"}",
        odd,
        raw[: rng.randrange(len(raw))],
    ]
    choices += [
        b"\xef\xbb\xbf" + raw,
        raw.decode("utf-8", "replace").encode("utf-16"),
        raw + raw,
        b"",
        b" " * 70_000 + raw,
        b"[" + raw + b"]",
    ]
    return rng.choice(choices)


def _odd_framing(path: str, raw: bytes, rng: random.Random, what: str) -> Hostile:
    """A body in chunks, whole or damaged; or shorter than it was announced."""
    if not what.startswith("chunks"):
        head = _head(
            "POST", path, ["Content-Type: application/json", f"Content-Length: {len(raw) + rng.choice([1, 500, 10**9])}"]
        )
        return Hostile((head, raw[: rng.randrange(len(raw) + 1)]), True, False, what)
    size = rng.choice([1, 7, 4096])
    chunks = [raw[start : start + size] for start in range(0, len(raw), size)]
    framed = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks] + [b"0\r\n\r\n"]
    damage = rng.choice(["none", "early", "size", "huge", "extension", "trailer", "both"])
    headers = ["Content-Type: application/json", "Transfer-Encoding: chunked"]
    if damage == "early":
        framed = framed[: rng.randrange(len(framed))]
    elif damage == "size":
        framed.insert(rng.randrange(len(framed)), b"zz\r\n")
    elif damage == "huge":
        framed.insert(rng.randrange(len(framed)), b"f" * rng.choice([7, 15, 16, 99]) + b"\r\n")
    elif damage == "extension":
        framed[0] = framed[0].replace(b"\r\n", b";" + b"x" * 5000 + b"\r\n", 1)
    elif damage == "trailer":
        framed[-1] = b"0\r\n" + b"X: y\r\n" * 200 + b"\r\n"
    elif damage == "both":
        headers.append(f"Content-Length: {rng.choice([0, len(raw), 3])}")
    head = _head("POST", path, headers)
    return Hostile((head, *framed), damage != "none", damage == "none", f"{what} {damage}")


def _odd_target(rng: random.Random) -> Hostile:
    target, method = rng.choice([*PATHS, *PATHS, *TARGETS]), rng.choice([*METHODS, "GET", "GET", "GET"])
    headers = rng.choice([[], ["Content-Length: 2"], [rng.choice(HEADERS)]])
    message = _head(method, target, headers) + (b"{}" if headers == ["Content-Length: 2"] else b"")
    if rng.random() < 0.1:
        message = rng.choice(
            [rng.randbytes(200), b"\x16\x03\x01\x02\x00\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", message[:-4], message * 20]
        )
    return Hostile((message,), True, False, f"{method[:8]} {target[:40]}")
