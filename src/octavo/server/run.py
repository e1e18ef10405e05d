"""Run the server: bind, start the engine while the web stack is imported, serve, drain."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from octavo.config.engine import EngineConfig
from octavo.config.flags import environment
from octavo.config.server import ServerConfig, object_of
from octavo.config.tenant_weights import parse_tenant_weights
from octavo.engine.frontend.served_model import locate_model
from octavo.errors import ConfigError
from octavo.loader.pypi import FetchReport
from octavo.log import setup_logging
from octavo.server.api_keys import ApiKeys, read_api_keys
from octavo.server.descriptors import ConnectionLimit, raise_descriptor_limit
from octavo.server.health import read_health
from octavo.server.listener import listen_on, remove_unix, url_of
from octavo.server.reload import Reload, Reloadable
from octavo.server.systemd import Notifier
from octavo.server.tls import load_files, tls_context
from octavo.streams import never_wait

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from octavo.server.context import ServerContext
    from octavo.server.model_reload import ModelReload
    from octavo.server.service.engine_face import Engine
    from octavo.server.service.service import Service

log = logging.getLogger("octavo.server")

BACKLOG = 2048
KEEP_ALIVE_S = 30
"""Longer than the 5 s of uvicorn: clients that pool connections would meet a closed one too often."""


def run_server(
    engine_config: EngineConfig, server_config: ServerConfig, *, started_s: float, report: FetchReport | None = None
) -> None:
    """Serve until a signal ends it.

    started_s  when the command began (time.perf_counter()); report hears of the progress of a download
    Raises: ConfigError when the address cannot be bound or the API key is empty, and whatever the engine's start raises.
    """
    never_wait()
    setup_logging(server_config.log_level, style=server_config.log_format)
    raise_descriptor_limit()
    check_keys(server_config)
    keys = read_api_keys(server_config)  # a fault in the file must not cost the wait for the model
    object_of(server_config.default_chat_template_kwargs, "default_chat_template_kwargs")
    tls = tls_context(server_config)
    with listen_on(server_config) as sock:
        try:
            given = with_key_weights(engine_config, keys)
            asyncio_run(_serve(locate_model(given, report), given, server_config, sock, tls, started_s))
        finally:
            remove_unix(sock, server_config)


def with_key_weights(config: EngineConfig, keys: ApiKeys) -> EngineConfig:
    """The configuration with the weights that keys give their tenants; those of --tenant-weights win."""
    given = {key.tenant: key.limits.weight for key in keys if key.limits.weight is not None}
    given |= parse_tenant_weights(config.scheduler.tenant_weights)
    if not given:
        return config
    text = ",".join(f"{name}={weight:g}" for name, weight in given.items())
    return replace(config, scheduler=replace(config.scheduler, tenant_weights=text))


def check_keys(config: ServerConfig) -> None:
    """Raise ConfigError for a key that guards nothing: an empty one, or one that opens both doors."""
    for name, key in (("api_key", config.api_key), ("admin_api_key", config.admin_api_key)):
        if key is not None and not key.strip():
            raise ConfigError(
                f"--{name.replace('_', '-')} is empty, which guards nothing; leave it out or give a key", param=name
            )
    if config.api_key is not None and config.api_key == config.admin_api_key:
        raise ConfigError("--admin-api-key is the same as --api-key: every client would be an admin", param="admin_api_key")


def asyncio_run(main: Coroutine[Any, Any, None]) -> None:
    """asyncio.run on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _serve(
    engine_config: EngineConfig,
    given: EngineConfig,
    server_config: ServerConfig,
    sock: socket.socket,
    tls: ssl.SSLContext | None,
    started_s: float,
) -> None:
    task = asyncio.current_task()
    assert task is not None
    _on_signals(task.cancel)
    # The engine's process loads the model while this one imports the web stack: two cores, half the wait.
    starting = asyncio.ensure_future(_start_engine(engine_config, server_config))
    try:
        await asyncio.to_thread(_import_web_stack)
        engine = await starting
    except asyncio.CancelledError:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        log.info("stopped before the server was ready")
        return
    try:
        app = _make_app(engine, engine_config, server_config)
        await _serve_app(app, given, server_config, sock, tls, started_s)
    finally:
        await engine.shutdown()


def _on_signals(callback: Callable[[], object]) -> None:
    """Call it on the event loop for each SIGTERM and SIGINT, in place of what was called before."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, callback)


async def _start_engine(config: EngineConfig, server_config: ServerConfig) -> Engine:
    # Imported here, not above: `octavo serve --help` and a mistyped flag should not wait for it.
    from octavo.engine.frontend.async_llm_engine import AsyncLLMEngine

    return await AsyncLLMEngine.start(
        config,
        log_stats_interval_s=None if server_config.disable_log_stats else server_config.metric_interval,
        log_requests=not server_config.disable_log_requests and server_config.log_level == "debug",
        log_level=server_config.log_level,
    )


def _import_web_stack() -> None:
    import uvicorn  # noqa: F401

    import octavo.server.app
    import octavo.server.http_protocol  # noqa: F401


def _make_app(engine: Engine, engine_config: EngineConfig, server_config: ServerConfig) -> FastAPI:
    from octavo.server.app import create_app

    return create_app(engine, server_config, model_names=engine_config.loading.served_names)


def _uvicorn_config(app: FastAPI, tls: ssl.SSLContext | None) -> uvicorn.Config:
    import uvicorn

    from octavo.server.http_protocol import BoundedHttpProtocol

    config = uvicorn.Config(
        app,
        http=partial(BoundedHttpProtocol, limit=ConnectionLimit()),  # type: ignore[arg-type]
        ws="none",
        workers=1,  # hosting services set WEB_CONCURRENCY, which uvicorn would read
        lifespan="off",  # _serve shuts the engine down itself, also when a second signal cuts everything short
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=5,
    )
    config.load()
    config.ssl = tls
    return config


async def _serve_app(
    app: FastAPI,
    given: EngineConfig,
    server_config: ServerConfig,
    sock: socket.socket,
    tls: ssl.SSLContext | None,
    started_s: float,
) -> None:
    import uvicorn

    from octavo.server.shutdown import Shutdown

    server = uvicorn.Server(_uvicorn_config(app, tls))
    _adopt_logs()

    def stop(at_once: bool) -> None:
        server.should_exit = True
        server.force_exit = server.force_exit or at_once

    # uvicorn would install handlers of its own, which stop at the first signal; ours drain first.
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    context = app.state.context
    shutdown = Shutdown(context, server_config.shutdown_timeout, stop)
    app.state.model_reload = model_reload = _model_reload(context, given)
    notifier = _notifier(app.state.context)

    def on_signal() -> None:
        notifier.stopping()
        shutdown.on_signal()

    _on_signals(on_signal)
    reload = _reload(app.state.context, tls)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.on_signal)
    watching = [asyncio.ensure_future(reload.watch()), asyncio.ensure_future(notifier.watch())]
    sock.listen(BACKLOG)
    _print_ready(url_of(sock, "http" if tls is None else "https"), app, started_s)
    notifier.ready()
    try:
        await server.serve(sockets=[sock])
    finally:
        for task in watching:
            task.cancel()
        await model_reload.close()
        await context.service.engine.shutdown()
        if context.usage is not None:
            context.usage.close()
    log.info("stopped")


def _model_reload(context: ServerContext, given: EngineConfig) -> ModelReload:
    """given: the configuration before its model was located, so that names follow the model where none was chosen."""
    from octavo.server.app import make_service
    from octavo.server.model_reload import ModelReload

    def config_of(path: str) -> EngineConfig:
        return replace(given, loading=replace(given.loading, model=path, load_format="auto", tokenizer=None))

    async def start(path: str) -> Engine:
        return await _start_engine(config_of(path), context.config)

    def service_of(engine: Engine, path: str) -> Service:
        return make_service(engine, context.config, config_of(path).loading.served_names)

    return ModelReload(context, start, service_of)


def _notifier(context: ServerContext) -> Notifier:
    async def status() -> str:
        health = await read_health(context.service.engine, is_draining=context.inflight.closed)
        return f"{health.status}: {health.reason}"

    return Notifier(environment(), status)


def _reload(context: ServerContext, tls: ssl.SSLContext | None) -> Reload:
    """What SIGHUP reads again."""
    config, parts = context.config, []
    key_files = [path for path in (config.api_keys, config.api_key_file) if path is not None]
    if key_files:
        parts.append(Reloadable("API keys", key_files, lambda: context.keys.take_over(read_api_keys(config))))
    if tls is not None:
        files = [path for path in (config.ssl_certfile, config.ssl_keyfile, config.ssl_ca_certs) if path is not None]
        parts.append(Reloadable("certificate", files, lambda: load_files(tls, config)))
    return Reload(parts)


def _adopt_logs() -> None:
    """Warnings and tracebacks of uvicorn and asyncio go where ours go."""
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = list(logging.getLogger("octavo").handlers)
        logger.setLevel(logging.WARNING)
        logger.propagate = False
    logging.getLogger("uvicorn.error").addFilter(_is_fault)


def _is_fault(record: logging.LogRecord) -> bool:
    """Requests that a second signal cuts short are no faults of the server."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


def _print_ready(url: str, app: FastAPI, started_s: float) -> None:
    """One line, and the only one on stdout: scripts wait for it."""
    elapsed_s = time.perf_counter() - started_s
    context = app.state.context
    auth = "key required" if context.keys else "no key"
    print(
        f"octavo is ready: {url}/v1  model {context.service.model_name}  {auth}  started in {elapsed_s:.2f} s",
        flush=True,
    )
