"""TLS: the context of the server's certificate, read again when its files change."""

from __future__ import annotations

import ssl

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """The context that the ssl options ask for; None without them. Raises ConfigError naming the file that is wrong."""
    if config.ssl_certfile is None:
        for name in ("ssl_keyfile", "ssl_ca_certs"):
            if getattr(config, name) is not None:
                raise ConfigError(f"--{name.replace('_', '-')} needs --ssl-certfile: the server's own certificate", param=name)
        return None
    if config.ssl_cert_reqs and config.ssl_ca_certs is None:
        raise ConfigError("--ssl-cert-reqs needs --ssl-ca-certs: who signs the certificates of clients", param="ssl_cert_reqs")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.VerifyMode(config.ssl_cert_reqs)
    load_files(context, config)
    return context


def load_files(context: ssl.SSLContext, config: ServerConfig) -> None:
    """Read certificate and key into a context: connections from now on are served with them. Raises ConfigError."""
    assert config.ssl_certfile is not None
    # A wrong pair would leave the context half changed: it is tried on another one.
    for target in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
        try:
            target.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            files = " and ".join(filter(None, (config.ssl_certfile, config.ssl_keyfile)))
            raise ConfigError(f"--ssl-certfile: {files} cannot be used: {_reason(error)}", param="ssl_certfile") from None
        if config.ssl_ca_certs is not None:
            try:
                target.load_verify_locations(config.ssl_ca_certs)
            except (OSError, ssl.SSLError) as error:
                message = f"--ssl-ca-certs: {config.ssl_ca_certs} cannot be used: {_reason(error)}"
                raise ConfigError(message, param="ssl_ca_certs") from None


def _no_password() -> str:
    """In place of OpenSSL's question at the terminal."""
    raise OSError("the key has a password; store it without one, readable for the server alone")


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
