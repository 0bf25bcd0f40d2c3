"""Who we are to brokers, and they to us: credentials, SASL, and what connections are made of."""

from __future__ import annotations

from kprod.security.credentials import FromEnvironment, FromFile

__all__ = ["FromEnvironment", "FromFile"]
