"""From the options to the mechanism they ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kprod.config import ProducerConfig
from kprod.config.secret import exposed
from kprod.errors import SaslAuthenticationError
from kprod.security.steps import Conversation, Mechanism


def mechanism_of(config: ProducerConfig) -> Mechanism | None:
    """The mechanism that logs in; None where nobody has to."""
    name = config.sasl_mechanism
    if name is None or not config.security_protocol.startswith("SASL"):
        return None
    return _MAKERS[name](config)


def _plain(config: ProducerConfig) -> Mechanism:
    from kprod.security.plain import PlainConversation

    login = _login(config)
    return Mechanism("PLAIN", lambda host: PlainConversation(login))


def _scram(config: ProducerConfig) -> Mechanism:
    from kprod.security.scram import ScramConversation

    name, login = config.sasl_mechanism or "", _login(config)
    return Mechanism(name, lambda host: ScramConversation(name, login), slow=True)


def _login(config: ProducerConfig) -> Callable[[], tuple[str, str]]:
    """Asked for every connection, so that what has changed counts."""
    provider, user, password = (
        config.sasl_credentials,
        config.sasl_plain_username or "",
        config.sasl_plain_password,
    )
    if provider is None:
        return lambda: (user, password.reveal() if password is not None else "")

    def told() -> tuple[str, str]:
        match provider():
            case (str(name), str(secret)) if name and secret:
                return name, secret
        raise SaslAuthenticationError("sasl_credentials did not return (username, password)")

    return told


def _oauthbearer(config: ProducerConfig) -> Mechanism:
    from kprod.security.oauthbearer import OAuthBearerConversation
    from kprod.security.token_provider import ProvidedTokens

    tokens = ProvidedTokens(_token_provider(config))
    fixed = config.sasl_oauthbearer_extensions

    def begin(host: str) -> Conversation:
        return OAuthBearerConversation(tokens.token, lambda: [*fixed, *tokens.extensions()])

    return Mechanism("OAUTHBEARER", begin, slow=True)


def _token_provider(config: ProducerConfig) -> Any:
    if config.sasl_oauth_token_provider is not None:
        return config.sasl_oauth_token_provider
    from kprod.security.client_credentials import ClientCredentials
    from kprod.security.issuer_trust import trusting

    secret, cafile = config.sasl_oauthbearer_client_secret, config.sasl_oauthbearer_cafile
    trusting(cafile)  # what cannot be used is told before anything starts
    return ClientCredentials(
        exposed(config.sasl_oauthbearer_token_endpoint_url),
        config.sasl_oauthbearer_client_id or "",
        secret.reveal if secret is not None else str,
        config.sasl_oauthbearer_scope,
        lambda: trusting(cafile),
    )


def _msk(config: ProducerConfig) -> Mechanism:
    from kprod.security.msk_iam import WIRE_NAME, MskTokens
    from kprod.security.oauthbearer import OAuthBearerConversation
    from kprod.security.token_provider import ProvidedTokens

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
