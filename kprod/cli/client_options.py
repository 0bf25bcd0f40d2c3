"""The client options that all commands share, and the producers and readers made from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from kprod.cli.record_lines import unescaped
from kprod.config.java_properties import java_properties
from kprod.config.reading import from_text, option_name
from kprod.errors import KprodError
from kprod.security.placeholders import filled as filled_in

_JAVA_ONLY = (
    *("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"),
    *("group.id", "auto.offset.reset"),
)


def read_properties(path: Path, *, filled: bool = True) -> dict[str, str]:
    """The options of a properties file. With ``filled``, placeholders in it are replaced.

    Leaves out Java's serializers, because a line is sent as bytes, and ``group.id`` and
    ``auto.offset.reset``. Raises typer.BadParameter for a file of another format.
    """
    try:
        found = java_properties(path.read_text(encoding="utf-8-sig"))
        kept = {name: value for name, value in found.items() if name not in _JAVA_ONLY}
        return {name: filled_in(value) for name, value in kept.items()} if filled else kept
    except (OSError, ValueError, KprodError) as error:
        raise typer.BadParameter(f"--config: {error}") from error


Options: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        "--option",
        help="A client option, as NAME=VALUE: compression_type=zstd. Repeatable.",
    ),
]
Servers: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        help="Bootstrap brokers, HOST:PORT,... Default: those of --config, or localhost:9092.",
    ),
]
EmbeddedServers: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        help="A Kafka cluster to write to. Default: an embedded broker is started.",
    ),
]
ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        exists=True,
        dir_okay=False,
        help="A file of options in Java's properties format; ${env:NAME}, ${file:PATH} and"
        " ${file:PATH:KEY} are replaced. Options on the command line take precedence.",
    ),
]


def parse_pairs(texts: Sequence[str] | None, name: str) -> Iterator[tuple[str, str]]:
    """Each ``NAME=VALUE`` as a pair. Raises typer.BadParameter with the option's ``name``."""
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"{name}: expected NAME=VALUE; got {text!r}")
        yield key, value


def separator(name: str, text: str) -> bytes:
    """The bytes of a separator option. Raises typer.BadParameter with the option's ``name``."""
    try:
        found = unescaped(text)
    except ValueError as error:
        raise typer.BadParameter(f"{name}: {error}") from None
    if not found:
        raise typer.BadParameter(f"{name}: expected at least one character")
    return found


def parse_options(texts: Sequence[str] | None, name: str) -> dict[str, Any]:
    """Producer options by name, with numbers and booleans converted. Raises as ``parse_pairs``."""
    return {key: from_text(key, value) for key, value in parse_pairs(texts, name)}


def with_config(
    config: Path | None, options: Mapping[str, Any], *, filled: bool = True
) -> dict[str, Any]:
    """The options of a properties file and of the command line. The command line takes precedence.

    ``filled`` has the same meaning as in ``read_properties``.
    """
    if config is None:
        return dict(options)
    read = {
        name: from_text(name, value)
        for name, value in read_properties(config, filled=filled).items()
    }
    return outweighed(read, options)


def outweighed(read: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a file and the ``given`` ones, which take precedence in any spelling."""
    names = {option_name(name) for name in given}
    return {**{n: v for n, v in read.items() if option_name(n) not in names}, **given}


def take_servers(options: dict[str, Any], given: str | None) -> str | None:
    """Remove ``bootstrap_servers`` from the options, in any spelling.

    Returns ``given``, or else the value of the removed option.
    """
    for name in list(options):
        if option_name(name) == "bootstrap_servers":
            found = str(options.pop(name))
            given = given or found
    return given


def open_producer(bootstrap_servers: str | None, options: Mapping[str, Any]) -> Any:
    """Make a producer with these options. If ``bootstrap_servers`` is None, they name the brokers.

    Raises typer.BadParameter for options that a producer does not have.
    """
    from kprod.producer import KafkaProducer

    try:
        if bootstrap_servers is not None:
            options = outweighed(options, {"bootstrap_servers": bootstrap_servers})
        return KafkaProducer(**options)
    except KprodError as error:
        raise typer.BadParameter(str(error)) from error


_CONNECTING = (
    *("bootstrap_", "client_id", "enable_ssl_", "proxy_", "sasl_", "security_", "ssl_"),
    *("receive_message_max_bytes", "transport", "unix_socket_"),
)
_OF_CONSUMERS = """
auto_commit_enable auto_commit_interval_ms check_crcs consume_callback_max_messages
consumer_timeout_ms coordinator_query_interval_ms default_offset_commit_callback
enable_auto_commit enable_auto_offset_store enable_incremental_fetch_sessions
enable_partition_eof exclude_internal_topics fetch_error_backoff_ms fetch_max_bytes
fetch_max_wait_ms fetch_message_max_bytes fetch_min_bytes fetch_queue_backoff_ms
fetch_wait_max_ms group_instance_id group_protocol group_protocol_type group_remote_assignor
heartbeat_interval_ms internal_throw_on_fetch_stable_offset_unsupported isolation_level
max_partition_fetch_bytes max_poll_interval_ms max_poll_records offset_store_method
offset_store_path offset_store_sync_interval_ms partition_assignment_strategy
queued_max_messages_kbytes queued_min_messages session_timeout_ms share_acknowledgement_mode
share_acquire_mode
"""
"""Options that consumers of Java, librdkafka and kafka-python have, and producers do not."""
_OF_REGISTRIES = ("basic_auth_", "schema_registry_")


def reader_options(
    texts: Sequence[str] | None, config: Path | None, servers: str | None
) -> dict[str, Any]:
    """The options for connections, which are all that a reader needs.

    Other options of Kafka's clients in a file are ignored. A name that no client knows, other
    options on the command line, and invalid values raise typer.BadParameter.
    """
    from kprod.config import ProducerConfig

    given = parse_options(texts, "-X")
    if others := [name for name in given if not _is_about_connecting(name)]:
        raise typer.BadParameter(f"-X {others[0]}: a reader takes connection options only")
    read = with_config(config, given)
    options = {
        name: value
        for name, value in read.items()
        if _is_about_connecting(name) or not _is_known(name)
    }
    options["bootstrap_servers"] = take_servers(options, servers) or "localhost:9092"
    try:
        ProducerConfig.from_options(options)
    except KprodError as error:
        raise typer.BadParameter(str(error)) from error
    return options


def _is_about_connecting(name: str) -> bool:
    return option_name(name).startswith(_CONNECTING)


def _is_known(name: str) -> bool:
    """Whether an option is one of kprod, of another Kafka client, or of a schema registry's."""
    from kprod.config.foreign_options import IGNORED, UNAVAILABLE
    from kprod.config.table import OPTIONS

    plain = option_name(name)
    return plain.startswith(_OF_REGISTRIES) or any(
        plain in names for names in (OPTIONS, IGNORED, UNAVAILABLE, _OF_CONSUMERS.split())
    )
