"""Producer options as the command line takes them, and the producer they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer

from kprod.errors import KprodError


def parse_pairs(texts: Sequence[str] | None, name: str) -> Iterator[tuple[str, str]]:
    """Each ``NAME=VALUE`` as a pair. Raises typer.BadParameter, naming the option ``name``."""
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"{name}: expected NAME=VALUE; got {text!r}")
        yield key, value


def parse_options(texts: Sequence[str] | None, name: str) -> dict[str, Any]:
    """Producer options by name: a number or a truth where the text is one. Raises as parse_pairs"""
    return {key: _typed(value) for key, value in parse_pairs(texts, name)}


def open_producer(bootstrap_servers: str, options: Mapping[str, Any]) -> Any:
    """A producer with these options. Raises typer.BadParameter for options it does not take."""
    from kprod.producer import KafkaProducer

    try:
        return KafkaProducer(bootstrap_servers=bootstrap_servers, **options)
    except KprodError as error:
        raise typer.BadParameter(str(error)) from error


def _typed(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return {"true": True, "false": False}.get(text.lower(), text)
