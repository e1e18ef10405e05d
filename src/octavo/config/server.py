"""ServerConfig: the HTTP face."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    host: str = option("127.0.0.1", "Address to listen on. 0.0.0.0 opens the server to the network: set --api-key too.")
    port: int = option(8000, "Port to listen on; 0 picks a free one.", low=0, high=65535)
    api_key: str | None = option(None, "Key that every route but /health and /admin asks for as 'Authorization: Bearer KEY'.")
    admin_api_key: str | None = option(
        None, "Key of the /admin routes, another one than --api-key. Default: those routes are closed."
    )
    max_body_size: int = option(16 * 2**20, "Largest request body in bytes; larger ones get 413.", low=1024, high=2**31)
    shutdown_timeout: float = option(
        30.0, "Seconds that running requests get to finish after SIGTERM.", low=0, high=86400, metavar="SECONDS"
    )
    log_level: str = option("info", "Least severe log message to print.", choices=("debug", "info", "warning", "error"))
    disable_log_requests: bool = option(False, "Do not print one line per finished request.")
    disable_log_stats: bool = option(False, "Do not print the periodic statistics line.")
    metric_interval: float = option(10.0, "Seconds between statistics lines.", low=0.1, high=86400, metavar="SECONDS")
