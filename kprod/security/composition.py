"""What connections are made of, from the socket up; the one place that puts it together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kprod.config import ProducerConfig
from kprod.config.secret import Secret, exposed
from kprod.security.steps import Begun, InlineSteps, Mechanism, Steps
from kprod.transport.base import Backend
from kprod.transport.registry import open_backend

if TYPE_CHECKING:
    from kprod.transport.tls_context import TlsContexts


def open_network(config: ProducerConfig) -> Backend:
    """A way to brokers (a socket, a proxy, the application's own), and TLS over it if asked for.

    Raises ConfigError for certificates and keys that cannot be used, having opened nothing.
    """
    if config.security_protocol not in ("SSL", "SASL_SSL"):
        return _way(config)
    from kprod.transport.tls import TlsBackend

    contexts = tls_contexts(config)
    return TlsBackend(_way(config), contexts)


def steps_of(mechanism: Mechanism) -> Callable[[str, Callable[[], None]], Steps]:
    """What works out the messages of one login with a host, in threads that all logins share.

    It gets the host, and what is to be called when a message that took long is worked out.
    """
    if not mechanism.slow:
        return lambda host, wake: InlineSteps(Begun(mechanism, host))
    from kprod.security.threaded_steps import StepThreads, ThreadedSteps

    threads = StepThreads()
    return lambda host, wake: ThreadedSteps(Begun(mechanism, host), wake, threads)


def _way(config: ProducerConfig) -> Backend:
    sizes = {
        "send_buffer_bytes": config.send_buffer_bytes,
        "receive_buffer_bytes": config.receive_buffer_bytes,
    }
    if config.proxy_url is not None:
        return open_backend("proxy", proxy_url=exposed(config.proxy_url), **sizes)
    if config.transport == "tcp":
        return open_backend("tcp", busy_poll=config.busy_poll_us / 1e6, **sizes)
    if config.transport == "unix":
        return open_backend("unix", path=config.unix_socket_path, **sizes)
    return open_backend(config.transport)


def tls_contexts(config: ProducerConfig) -> TlsContexts:
    """What TLS needs, as the options ask for it. Raises ConfigError."""
    import ssl

    from kprod.transport.tls_context import TlsContexts, TlsSettings

    versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    enabled = config.ssl_enabled_protocols or tuple(versions)
    truststore, keystore = config.ssl_truststore_password, config.ssl_keystore_password
    key_password = config.ssl_password
    return TlsContexts(
        TlsSettings(
            context=config.ssl_context,
            cafile=config.ssl_cafile,
            cafile_password=_asked(truststore),
            certfile=exposed(config.ssl_certfile),
            certfile_password=_asked(keystore),
            keyfile=exposed(config.ssl_keyfile),
            key_password=_asked(key_password),
            crlfile=config.ssl_crlfile,
            ciphers=config.ssl_ciphers,
            check_hostname=config.ssl_check_hostname,
            verify=config.enable_ssl_certificate_verification,
            minimum_version=versions[max(config.ssl_minimum_version, min(enabled))],
            maximum_version=versions[max(enabled)],
        )
    )


def _asked(secret: Secret | None) -> Callable[[], str] | None:
    return None if secret is None else secret.reveal
