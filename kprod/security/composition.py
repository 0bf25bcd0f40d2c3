"""Makes the network backend, TLS contexts and the login mechanism from the options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kprod.config import ProducerConfig
from kprod.config.secret import Secret, exposed
from kprod.errors import SaslAuthenticationError
from kprod.security.steps import Begun, Conversation, InlineSteps, Mechanism, Steps
from kprod.transport.base import Backend
from kprod.transport.registry import open_backend

if TYPE_CHECKING:
    from kprod.transport.tls_context import TlsContexts


def open_network(config: ProducerConfig) -> Backend:
    """Make the backend for connections: sockets, a proxy or a custom transport; with TLS if set.

    Raises ConfigError for invalid certificates and keys, before anything is opened.
    """
    if config.security_protocol not in ("SSL", "SASL_SSL"):
        return _way(config)
    from kprod.transport.tls import TlsBackend

    contexts = tls_contexts(config)
    return TlsBackend(_way(config), contexts)


def steps_of(mechanism: Mechanism) -> Callable[[str, Callable[[], None]], Steps]:
    """A function that starts a login with a host. Slow logins run in shared threads.

    The returned function takes the host, and a function to call when a slow message is ready.
    """
    if not mechanism.slow:
        return lambda host, wake: InlineSteps(Begun(mechanism, host))
    from kprod.security.threaded_steps import StepThreads, ThreadedSteps

    threads = StepThreads()
    return lambda host, wake: ThreadedSteps(Begun(mechanism, host), wake, threads)


def _way(config: ProducerConfig) -> Backend:
    options = {
        "send_buffer_bytes": config.send_buffer_bytes,
        "receive_buffer_bytes": config.receive_buffer_bytes,
        "busy_poll": config.busy_poll_us / 1e6,
    }
    if config.proxy_url is not None:
        return open_backend("proxy", proxy_url=exposed(config.proxy_url), **options)
    if config.transport == "tcp":
        return open_backend("tcp", **options)
    if config.transport == "unix":
        return open_backend("unix", path=config.unix_socket_path, **options)
    return open_backend(config.transport)


def tls_contexts(config: ProducerConfig) -> TlsContexts:
    """The TLS contexts for the options. Raises ConfigError."""
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


def mechanism_of(config: ProducerConfig) -> Mechanism | None:
    """The login mechanism; None if none is configured."""
    name = config.sasl_mechanism
    if name is None or not config.security_protocol.startswith("SASL"):
        return None
    return _MAKERS[name](config)


def _plain(config: ProducerConfig) -> Mechanism:
    from kprod.security.password import PlainConversation

    login, password = _login(config), config.sasl_plain_password
    asks = config.sasl_credentials is not None or (
        password is not None and password.is_asked_for
    )  # the application's code may block
    return Mechanism("PLAIN", lambda host: PlainConversation(login), slow=asks)


def _scram(config: ProducerConfig) -> Mechanism:
    from kprod.security.password import ScramConversation

    name, login = config.sasl_mechanism or "", _login(config)
    return Mechanism(name, lambda host: ScramConversation(name, login), slow=True)


def _login(config: ProducerConfig) -> Callable[[], tuple[str, str]]:
    """A function that returns user and password. It is called for every connection."""
    provider, user, password = (
        config.sasl_credentials,
        config.sasl_plain_username or "",
        config.sasl_plain_password,
    )
    if provider is None:
        return lambda: (user, password.reveal() if password is not None else "")

    def provided() -> tuple[str, str]:
        match provider():
            case (str(name), str(secret)) if name and secret:
                return name, secret
        raise SaslAuthenticationError("sasl_credentials did not return (username, password)")

    return provided


def _oauthbearer(config: ProducerConfig) -> Mechanism:
    from kprod.security.oauthbearer import OAuthBearerConversation, ProvidedTokens

    tokens = ProvidedTokens(_token_provider(config))
    fixed = config.sasl_oauthbearer_extensions

    def begin(host: str) -> Conversation:
        return OAuthBearerConversation(tokens.token, lambda: [*fixed, *tokens.extensions()])

    return Mechanism("OAUTHBEARER", begin, slow=True)


def _token_provider(config: ProducerConfig) -> Any:
    if config.sasl_oauth_token_provider is not None:
        return config.sasl_oauth_token_provider
    from kprod.security.client_credentials import ClientCredentials, trusting

    secret, cafile = config.sasl_oauthbearer_client_secret, config.sasl_oauthbearer_cafile
    trusting(cafile)  # raises for an invalid file before anything starts
    return ClientCredentials(
        exposed(config.sasl_oauthbearer_token_endpoint_url),
        config.sasl_oauthbearer_client_id or "",
        secret.reveal if secret is not None else str,
        config.sasl_oauthbearer_scope,
        lambda: trusting(cafile),
    )


def _msk(config: ProducerConfig) -> Mechanism:
    from kprod.security.oauthbearer import (
        WIRE_NAME,
        MskTokens,
        OAuthBearerConversation,
        ProvidedTokens,
    )

    region = config.sasl_msk_region

    def begin(host: str) -> Conversation:
        tokens = ProvidedTokens(MskTokens(host, region), mechanism="AWS_MSK_IAM")
        return OAuthBearerConversation(tokens.token)

    return Mechanism(WIRE_NAME, begin, slow=True)


def _kerberos(config: ProducerConfig) -> Mechanism:
    from kprod.security.kerberos import KerberosConversation

    service, name = config.sasl_kerberos_service_name or "kafka", config.sasl_kerberos_name
    domain = config.sasl_kerberos_domain_name
    return Mechanism(
        "GSSAPI", lambda host: KerberosConversation(service, domain or host, name), slow=True
    )


_MAKERS: dict[str, Callable[[ProducerConfig], Mechanism]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
    "OAUTHBEARER": _oauthbearer,
    "AWS_MSK_IAM": _msk,
    "GSSAPI": _kerberos,
}
