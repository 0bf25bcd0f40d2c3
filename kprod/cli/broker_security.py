"""How ``kprod broker`` asks its clients who they are: the options, and the listener they make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Certificate = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, help="Speak TLS, with the certificate and key in this PEM."
    ),
]
ClientAuthorities = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="With --tls: clients need a certificate by one of these authorities.",
    ),
]
Users = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="Clients log in by SASL (PLAIN, SCRAM): a file with lines of NAME:PASSWORD.",
    ),
]


def secured_listeners(
    host: str, port: int, tls: Path | None, client_ca: Path | None, users: Path | None
) -> list[Any]:
    """The one listener that the options describe. Raises typer.BadParameter for bad files."""
    import ssl

    from kprod.broker import Authentication, make_listener, tls_context

    if client_ca is not None and tls is None:
        raise typer.BadParameter("--tls-client-ca needs --tls")
    try:
        context = None
        if tls is not None:
            context = tls_context(str(tls), None, None if client_ca is None else str(client_ca))
    except (ssl.SSLError, OSError) as error:
        raise typer.BadParameter(f"--tls: {error}") from error
    login = None if users is None else Authentication(_read_users(users))
    name = ("SASL_" if login else "") + ("SSL" if context else "PLAINTEXT")
    return [make_listener(name, host=host, port=port, tls=context, authentication=login)]


def _read_users(path: Path) -> dict[str, str]:
    pairs = [line.partition(":") for line in path.read_text().splitlines() if line.strip()]
    if not pairs or not all(name and colon and password for name, colon, password in pairs):
        raise typer.BadParameter("--users: expected lines of NAME:PASSWORD")
    return {name.strip(): password for name, _, password in pairs}
