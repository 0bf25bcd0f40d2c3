"""Whom to trust as the issuer of tokens: an HTTPS server like any other."""

from __future__ import annotations

import ssl

from kprod.errors import ConfigError
from kprod.transport.tls_context import read_pem


def trusting(cafile: str | None) -> ssl.SSLContext:
    """A context for its certificate; the system's authorities without ``cafile``.

    ``cafile`` is the path of a PEM file, or PEM text. Raises ConfigError for what cannot be used.
    """
    if cafile is None:
        return ssl.create_default_context()
    text = read_pem("sasl_oauthbearer_cafile", cafile)
    try:
        return ssl.create_default_context(cadata=text)
    except ssl.SSLError as error:
        raise ConfigError(f"sasl_oauthbearer_cafile: {error.reason or error}") from None
