"""``kprod errors``: explains what an error means, and what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from kprod.cli.error_pages import error_pages


def errors(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Error numbers (KP-1303, or 1303) or class names. Default: list all."),
    ] = None,
) -> None:
    """Explain errors: whether the record is stored, the usual causes, and what to do."""
    try:
        typer.echo(error_pages(names or ()))
    except LookupError as unknown:
        raise typer.BadParameter(str(unknown)) from unknown
