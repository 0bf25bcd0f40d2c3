"""The options of producers and readers as every command takes them, and the clients they make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from kprod.config.reading import from_text
from kprod.errors import KprodError
from kprod.security import FromEnvironment, FromFile

if TYPE_CHECKING:
    from kprod.broker.cluster_client import ClientSecurity


_ELSEWHERE = re.compile(r"\$\{(env|file):([^}]+)\}")
_CONSUMERS = ("key.deserializer", "value.deserializer", "group.id", "auto.offset.reset")


def read_properties(path: Path, *, filled: bool = True) -> dict[str, str]:
    """Names and values; ``${env:NAME}`` and ``${file:PATH}`` stand for what is found there.

    They stay as they are unless ``filled``.

    Java's serializers of text and bytes are left away, for lines are bytes. Raises
    typer.BadParameter for a file that is not of that format.
    """
    import javaproperties

    try:
        with path.open(encoding="utf-8") as file:
            found: Mapping[str, str] = javaproperties.load(file)
        kept = {name: value for name, value in found.items() if not _java_only(name)}
        return {name: _filled(value) for name, value in kept.items()} if filled else kept
    except (OSError, ValueError, KprodError) as error:
        raise typer.BadParameter(f"--config: {error}") from error


def _java_only(name: str) -> bool:
    return name in ("key.serializer", "value.serializer", *_CONSUMERS)


def _filled(value: str) -> str:
    def told(match: re.Match[str]) -> str:
        kind, where = match.groups()
        return (FromEnvironment(where) if kind == "env" else FromFile(where))()

    return _ELSEWHERE.sub(told, value)


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
    from kprod.security.composition import mechanism_of, tls_contexts

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
