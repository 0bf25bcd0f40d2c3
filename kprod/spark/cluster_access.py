"""How tools that ask brokers, or read topics, connect with the options of a producer."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from kprod.config import ProducerConfig
from kprod.errors import ConfigError
from kprod.security.composition import mechanism_of, tls_contexts
from kprod.spark.producer_options import resolved

if TYPE_CHECKING:
    from kprod.broker.cluster_client import ClientSecurity


class ClusterAccess(NamedTuple):
    """``bootstrap_servers`` as HOST:PORT,... and the TLS and login that belong to them."""

    bootstrap_servers: str
    security: ClientSecurity
    timeout: float
    """Seconds that an answer is waited for: ``max_block_ms``."""


def need_broker_extra(what: str) -> None:
    """Raises ConfigError where the extra is missing that ``what`` needs."""
    if find_spec("kio") is None:
        raise ConfigError(
            f"{what} needs kio, on the driver and on every executor: pip install 'kprod[broker]'"
        )


def cluster_access(options: Mapping[str, Any]) -> ClusterAccess:
    """The access that ``options`` of a producer describe. Secrets are looked up here.

    Raises ConfigError, also for a proxy and for transports other than TCP.
    """
    from kprod.broker.cluster_client import ClientSecurity

    config = ProducerConfig.from_options(resolved(options))
    if config.proxy_url is not None or config.transport != "tcp":
        raise ConfigError("topics and transactions are read over TCP, without a proxy")
    encrypted = config.security_protocol in ("SSL", "SASL_SSL")
    mechanism = mechanism_of(config)
    security = ClientSecurity(
        context=tls_contexts(config).current() if encrypted else None,
        mechanism=None if mechanism is None else mechanism.name,
        begin=None if mechanism is None else mechanism.begin,
    )
    servers = ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for host, port in config.bootstrap_servers
    )
    return ClusterAccess(servers, security, config.max_block_ms / 1000)
