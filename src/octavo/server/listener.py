"""The socket that the server listens on: TCP or Unix."""

from __future__ import annotations

import errno
import os
import socket
import stat

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError


def listen_on(config: ServerConfig) -> socket.socket:
    """A bound socket that does not listen yet. Before the model loads: a taken address must not cost the wait for it.

    Raises ConfigError naming the flag.
    """
    return bind(config.host, config.port) if config.uds is None else bind_unix(config.uds)


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket, IPv4 or IPv6 as host says."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as error:
        raise ConfigError(f"--host {host!r} is not an address of this machine: {error.strerror}", param="host") from None
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {reason}; choose another --port (0 picks a free one) or --host; "
            "`octavo doctor` says who has it",
            param="port",
        ) from None
    return sock


def bind_unix(path: str) -> socket.socket:
    """A bound Unix socket. The socket that a server left behind when it was killed is replaced; another file is not."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_left_behind(path):
            os.unlink(path)
        sock.bind(path)
    except OSError as error:
        sock.close()
        is_taken = error.errno == errno.EADDRINUSE
        reason = "a server listens there, or another file has this name" if is_taken else error.strerror or str(error)
        raise ConfigError(f"cannot listen on --uds {path}: {reason.lower()}; choose another path", param="uds") from None
    return sock


def url_of(sock: socket.socket, scheme: str) -> str:
    """Where clients find the server."""
    if sock.family == socket.AF_UNIX:
        return f"{scheme}+unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def remove_unix(sock: socket.socket, config: ServerConfig) -> None:
    """Take the name of a Unix socket away when its server ends."""
    if config.uds is not None:
        sock.close()
        try:
            os.unlink(config.uds)
        except FileNotFoundError:
            return


def _is_left_behind(path: str) -> bool:
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return False
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(path) == errno.ECONNREFUSED
