"""ServerConfig: the HTTP face."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from octavo.config.option import option
from octavo.dialogue.dialect import REASONING, REASONING_ALIASES, TOOL_ALIASES, TOOL_FORMATS
from octavo.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    host: str = option("127.0.0.1", "Address to listen on. 0.0.0.0 opens the server to the network: set --api-key too.")
    port: int = option(8000, "Port to listen on; 0 picks a free one.", low=0, high=65535)
    api_key: str | None = option(
        None, "Key that every route but /health, /ready and /admin asks for as 'Authorization: Bearer KEY'."
    )
    api_key_file: str | None = option(
        None,
        "File of further keys, one 'NAME KEY' per line. With several keys, each name is a tenant: see --scheduler-policy fair.",
        metavar="FILE",
    )
    api_keys: str | None = option(
        None,
        "File of keys with limits, TOML or JSON, which `octavo keys` writes; it is read again when it changes or SIGHUP comes.",
        metavar="FILE",
    )
    usage_db: str | None = option(
        None,
        "SQLite file for what the keys of --api-keys have used. Default: beside their file, .usage.sqlite3 behind its name.",
        metavar="FILE",
    )
    metrics_without_key: bool = option(False, "Let anybody read /metrics, without a key.")
    admin_api_key: str | None = option(
        None, "Key of the /admin routes, another one than --api-key. Default: those routes are closed."
    )
    uds: str | None = option(None, "Unix socket to listen on, in place of --host and --port.", metavar="PATH")
    ssl_keyfile: str | None = option(None, "Private key of the server's certificate: serve HTTPS.", metavar="FILE")
    ssl_certfile: str | None = option(
        None, "Certificate of the server, with those that lead to its root. It is read again when it changes.", metavar="FILE"
    )
    ssl_ca_certs: str | None = option(None, "Certificates of those who sign certificates of clients.", metavar="FILE")
    ssl_cert_reqs: int = option(
        0, "Certificates of clients: 0 asks for none, 1 checks one that is shown, 2 refuses clients without.", low=0, high=2
    )
    allowed_origins: str = option(
        "*",
        "Web pages whose scripts may call this server: origins separated by commas, or a JSON list as in vLLM. * is all, empty"
        " is none.",
        metavar="LIST",
    )
    allowed_methods: str = option("*", "Methods that those scripts may use; * is all.", metavar="LIST")
    allowed_headers: str = option("*", "Headers that those scripts may send; * is all.", metavar="LIST")
    allow_credentials: bool = option(False, "Let those scripts send cookies and other credentials of the browser.")
    root_path: str = option(
        "", "Path under which a proxy offers this server, such as /llm. It may strip it or not.", metavar="PATH"
    )
    trust_request_chat_template: bool = option(
        False, "Let requests bring a chat_template of their own; it is rendered within the same limits as the model's."
    )
    chat_template_content_format: str = option(
        "auto",
        "How chat templates get the content of messages: as a text (string), as a list of parts (openai), or as each wants it.",
        choices=("auto", "string", "openai"),
    )
    default_chat_template_kwargs: str | None = option(
        None,
        'Variables for the chat template of every chat, as JSON, such as {"enable_thinking": false}; those of a request win.',
        metavar="JSON",
    )
    response_role: str = option("assistant", "The role in answers to chats.", metavar="ROLE")
    return_tokens_as_token_ids: bool = option(
        False, "Show tokens in logprobs as token_id:N; a request may say otherwise with the field of that name."
    )
    enable_force_include_usage: bool = option(False, "End every stream with its usage, also where nobody asked for it.")
    disable_fastapi_docs: bool = option(False, "Do not serve /docs, /redoc and /openapi.json.")
    enable_tokenizer_info_endpoint: bool = option(
        False, "Serve /tokenizer_info: the tokenizer's settings and the chat template."
    )
    tool_call_parser: str | None = option(
        None,
        "How the model writes tool calls, as in vLLM; by default its chat template tells. See docs/tools.md.",
        choices=tuple(TOOL_FORMATS),
        synonyms=TOOL_ALIASES,
        metavar="NAME",
    )
    reasoning_parser: str | None = option(
        None,
        "How the model writes reasoning, as in vLLM; by default its chat template tells. none leaves it in the answer.",
        choices=tuple(REASONING),
        synonyms=REASONING_ALIASES,
        metavar="NAME",
    )
    max_body_size: int = option(16 * 2**20, "Largest request body in bytes; larger ones get 413.", low=1024, high=2**31)
    shutdown_timeout: float = option(
        30.0, "Seconds that running requests get to finish after SIGTERM.", low=0, high=86400, metavar="SECONDS"
    )
    metrics_prefix: str = option(
        "octavo", "First part of all names in /metrics; with vllm, dashboards made for vLLM show this server.", metavar="NAME"
    )
    log_format: str = option("text", "text: a line to read; json: an object per line, to collect.", choices=("text", "json"))
    log_level: str = option("info", "Least severe log message to print.", choices=("debug", "info", "warning", "error"))
    disable_log_requests: bool = option(False, "Do not print one line per finished request.")
    disable_log_stats: bool = option(False, "Do not print the periodic statistics line.")
    metric_interval: float = option(10.0, "Seconds between statistics lines.", low=0.1, high=86400, metavar="SECONDS")


def object_of(text: str | None, name: str) -> dict[str, Any]:
    """The JSON object that a setting holds; {} without it. Raises ConfigError."""
    try:
        value = {} if text is None else json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"--{name.replace('_', '-')} is {str(text)[:100]!r}; it must be a JSON object", param=name)
    return value


def words_of(text: str, name: str) -> list[str]:
    """The words of a setting that holds several: separated by commas, or as a JSON list. Raises ConfigError."""
    if not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",") if word.strip()]
    try:
        words = json.loads(text)
    except ValueError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ConfigError(
            f"--{name.replace('_', '-')} is {text[:100]!r}; it must be words separated by commas, or a JSON list of texts",
            param=name,
        )
    return words
