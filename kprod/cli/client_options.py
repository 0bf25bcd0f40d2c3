"""The options of producers and readers as every command takes them, and the clients they make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from kprod.config.option import plain_name
from kprod.config.reading import from_text
from kprod.errors import KprodError
from kprod.security import FromEnvironment, FromFile

if TYPE_CHECKING:
    from kprod.broker.client_security import ClientSecurity


_ELSEWHERE = re.compile(r"\$\{(env|file):([^}]+)\}")
_JAVA_ONLY = (
    *("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"),
    *("group.id", "auto.offset.reset"),
)


def read_properties(path: Path, *, filled: bool = True) -> dict[str, str]:
    """Names and values; ``filled``: with secrets in place of ``${env:NAME}`` and ``${file:PATH}``.

    Java's serializers and options of consumers are left out: a line is bytes. Raises
    typer.BadParameter for a file of another format.
    """
    import javaproperties

    try:
        with path.open(encoding="utf-8") as file:
            found: Mapping[str, str] = javaproperties.load(file)
        kept = {name: value for name, value in found.items() if name not in _JAVA_ONLY}
        return {name: _filled(value) for name, value in kept.items()} if filled else kept
    except (OSError, ValueError, KprodError) as error:
        raise typer.BadParameter(f"--config: {error}") from error


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
Servers: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        help="Brokers to ask first, HOST:PORT,... Otherwise those of --config, or localhost:9092.",
    ),
]
EmbeddedServers: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        help="A Kafka to write to. Without it: an embedded broker is started.",
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
    """The options of a properties file, and those given by themselves, which count more.

    ``filled`` as in ``read_properties``.
    """
    if config is None:
        return dict(options)
    read = {
        name: from_text(name, value)
        for name, value in read_properties(config, filled=filled).items()
    }
    return outweighed(read, options)


def outweighed(read: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a file, and those that are given, which count more in any spelling."""
    names = {plain_name(name) for name in given}
    return {**{n: v for n, v in read.items() if plain_name(n) not in names}, **given}


def take_servers(options: dict[str, Any], given: str | None) -> str | None:
    """Take ``bootstrap_servers`` out of the options, in any spelling; ``given`` counts more."""
    for name in list(options):
        if plain_name(name) in ("bootstrap_servers", "metadata_broker_list"):
            found = str(options.pop(name))
            given = given or found
    return given


def open_producer(bootstrap_servers: str | None, options: Mapping[str, Any]) -> Any:
    """A producer with these options; ``bootstrap_servers`` None leaves them to the options.

    Raises typer.BadParameter for options it does not take.
    """
    from kprod.producer import KafkaProducer

    try:
        if bootstrap_servers is None:
            return KafkaProducer(**options)
        rest = {n: v for n, v in options.items() if plain_name(n) != "bootstrap_servers"}
        return KafkaProducer(bootstrap_servers=bootstrap_servers, **rest)
    except KprodError as error:
        raise typer.BadParameter(str(error)) from error


_CONNECTING = (
    *("bootstrap_", "client_id", "enable_ssl_", "https_", "metadata_broker_", "sasl_"),
    *("security_", "ssl_"),
)


def reader_options(texts: Sequence[str] | None, config: Path | None) -> dict[str, Any]:
    """The options about connecting, which are all that a reader has use for.

    Others in a file are for other programs; raises typer.BadParameter for one that was given here.
    """
    given = parse_options(texts, "-X")
    if others := [name for name in given if not _is_about_connecting(name)]:
        raise typer.BadParameter(f"-X {others[0]}: a reader takes options about connecting only")
    options = with_config(config, given)
    return {name: value for name, value in options.items() if _is_about_connecting(name)}


def _is_about_connecting(name: str) -> bool:
    return plain_name(name).startswith(_CONNECTING)


def reader_security(options: Mapping[str, Any]) -> ClientSecurity:
    """TLS and login from these options of a producer. Raises typer.BadParameter."""
    from kprod.broker.client_security import ClientSecurity
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
