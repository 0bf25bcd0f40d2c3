"""Options of producers and readers as every command takes them, and the producer they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from kprod.config.reading import from_text
from kprod.errors import KprodError

Options: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        "--option",
        help="An option of the client, as NAME=VALUE: compression_type=zstd. Repeatable.",
    ),
]
ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        exists=True,
        dir_okay=False,
        help="Options in Java's properties format; ${env:NAME} and ${file:PATH} stand for secrets."
        " What is given by itself counts more.",
    ),
]


def parse_pairs(texts: Sequence[str] | None, name: str) -> Iterator[tuple[str, str]]:
    """Each ``NAME=VALUE`` as a pair. Raises typer.BadParameter, naming the option ``name``."""
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"{name}: expected NAME=VALUE; got {text!r}")
        yield key, value


def parse_options(texts: Sequence[str] | None, name: str) -> dict[str, Any]:
    """Producer options by name: a number or a truth where the text is one. Raises as parse_pairs"""
    return {key: from_text(key, value) for key, value in parse_pairs(texts, name)}


def with_config(
    config: Path | None, options: Mapping[str, Any], *, filled: bool = True
) -> dict[str, Any]:
    """The options of a properties file, unless they are given by themselves, too, and those.

    A name is the same in all its spellings: with dots, with underscores. Not ``filled``: what
    stands for secrets is left as it is.
    """
    if config is None:
        return dict(options)
    from kprod.cli.properties_file import read_properties

    given = {name.replace(".", "_") for name in options}
    read = {
        name: from_text(name, value)
        for name, value in read_properties(config, filled=filled).items()
    }
    return {**{n: v for n, v in read.items() if n.replace(".", "_") not in given}, **options}


def take_servers(options: dict[str, Any]) -> str | None:
    """Take ``bootstrap_servers`` out of the options, in whatever spelling; None: not there."""
    found = None
    for name in list(options):
        if name.replace(".", "_") in ("bootstrap_servers", "metadata_broker_list"):
            found = str(options.pop(name))
    return found


def open_producer(bootstrap_servers: str | None, options: Mapping[str, Any]) -> Any:
    """A producer with these options; ``bootstrap_servers`` None leaves them to the options.

    Raises typer.BadParameter for options it does not take.
    """
    from kprod.producer import KafkaProducer

    try:
        if bootstrap_servers is None:
            return KafkaProducer(**options)
        rest = {n: v for n, v in options.items() if n.replace(".", "_") != "bootstrap_servers"}
        return KafkaProducer(bootstrap_servers=bootstrap_servers, **rest)
    except KprodError as error:
        raise typer.BadParameter(str(error)) from error
