"""From a client's options to how the reader connects: TLS and logins as the producer has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from kprod.errors import KprodError

if TYPE_CHECKING:
    from kprod.broker.cluster_client import ClientSecurity

_CONNECTING = (
    *("bootstrap_", "client_id", "enable_ssl_", "https_", "metadata_broker_", "sasl_"),
    *("security_", "ssl_"),
)


def connecting(options: Mapping[str, Any], *, config_file: bool) -> dict[str, Any]:
    """Those of the options that are about connecting, which a reader has use for.

    Others in a file are for other programs; raises typer.BadParameter for one that was given here.
    """
    kept, others = {}, []
    for name, value in options.items():
        if name.replace(".", "_").startswith(_CONNECTING):
            kept[name] = value
        else:
            others.append(name)
    if others and not config_file:
        raise typer.BadParameter(f"-X {others[0]}: a reader takes options about connecting only")
    return kept


def reader_security(options: Mapping[str, Any]) -> ClientSecurity:
    """What these options of a producer ask for. Raises typer.BadParameter."""
    from kprod.broker.cluster_client import ClientSecurity
    from kprod.config import ProducerConfig
    from kprod.security.composition import tls_contexts
    from kprod.security.mechanisms import mechanism_of

    try:
        config = ProducerConfig.from_options(options)
        if config.proxy_url is not None or config.transport != "tcp":
            raise typer.BadParameter("what was written is read over TCP, without a proxy")
        encrypted = config.security_protocol in ("SSL", "SASL_SSL")
        mechanism = mechanism_of(config)
        return ClientSecurity(
            context=tls_contexts(config).current() if encrypted else None,
            mechanism=None if mechanism is None else mechanism.name,
            begin=None if mechanism is None else mechanism.begin,
        )
    except KprodError as error:
        raise typer.BadParameter(str(error)) from error
