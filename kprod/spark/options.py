"""The options of the functions in kprod.spark: names, types, defaults, and how tasks get them."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Required, TypeVar, cast

from pyspark import cloudpickle  # what Spark itself ships functions with

from kprod.config import OPTIONS, ProducerConfig
from kprod.config.option import plain_name
from kprod.config.option_types import ClientOptions
from kprod.config.reading import by_name, concealed, of_profile, option_name, with_defaults
from kprod.config.secret import Secret, exposed
from kprod.errors import ConfigError
from kprod.schema.columns.payload_format import Kind
from kprod.security.placeholders import filled, has_placeholder

OnRowError = Literal["fail", "skip", "dead_letter"]
KeyFormat = Literal["binary", "json"]
Delivery = Literal["at_least_once", "exactly_once", "atomic"]


class WriterOptions(ClientOptions, total=False):
    """The options of ``partition_writer``, in addition to those of ``KafkaProducer``.

    Columns: ``key`` and ``value`` are the names of the columns with the keys and the values.
    ``columns`` maps any part of the record to a column: ``{"timestamp": "departed"}``.

    Formats: ``value_format`` and ``key_format`` are "binary" (bytes and str are written as they
    are) or "json". If there is no value column, ``value_format="json"`` writes an object of the
    other columns. ``value_format`` may also be "avro", "protobuf" or "json_schema". These three
    need ``schema_registry`` (a URL or a ``SchemaRegistry``). Their schema belongs to ``subject``,
    by default the topic with the suffix ``-value``. The driver registers ``avro_schema``,
    ``json_schema`` (both JSON strings) or ``protobuf_message`` (the message class, or
    ``"package.module:Class"``). Without ``avro_schema`` or ``json_schema``, the driver uses the
    latest version of the subject. "avro" also works without a registry, with ``avro_schema`` and
    ``schema_id``. If ``schema_id`` is None, values are plain Avro. A format cannot be combined with
    a serializer for the same part of the record.

    Invalid rows: ``on_row_error`` is "fail" (the task fails), "skip" (the row is counted) or
    "dead_letter" (the row is written to ``dead_letter_topic``). With at-least-once delivery,
    ``on_row_error`` also applies to rows that the broker rejects. With "exactly_once" and "atomic",
    a row that the broker rejects fails the task. A task fails if it has more than
    ``max_row_errors`` invalid rows.

    Delivery: ``delivery`` is "at_least_once" (default), "exactly_once" or "atomic". The following
    three options are only for "exactly_once" and "atomic". ``job_id`` is the name of a job that may
    be started again. ``transaction_prefix`` is the prefix of transactional ids and groups.
    ``marker_topic`` is the topic that progress markers are committed for, by default ``topic``.

    ``timeout`` is the time in seconds to wait for acknowledgements at the end of a partition. The
    default is ``delivery_timeout_ms`` plus 10 seconds.
    """

    bootstrap_servers: Required[str | Sequence[str]]
    key: str
    value: str
    timeout: float | None
    columns: Mapping[str, str] | None
    value_format: Kind
    key_format: KeyFormat
    avro_schema: str | None
    schema_id: int | None
    json_schema: str | None
    protobuf_message: Any
    subject: str | None
    schema_registry: Any
    on_row_error: OnRowError
    dead_letter_topic: str | None
    max_row_errors: int | None
    delivery: Delivery
    job_id: str | None
    transaction_prefix: str
    marker_topic: str | None


class WriteOptions(WriterOptions, total=False):
    """The options of ``write`` and ``foreach_batch``, in addition to ``WriterOptions``.

    ``max_records_per_second`` and ``max_bytes_per_second`` (bytes of keys and values) limit the
    whole job. The limit is divided by the maximum number of concurrent tasks.

    ``repartition="kafka"`` shuffles the rows by their Kafka partition, so that each partition is
    written by one task. The default ``batch_size`` is then 1 MiB.

    ``shards`` and ``shard_by`` shuffle the rows as ``kprod.spark.sharded`` does. They are only for
    ``delivery="exactly_once"`` and "atomic".

    ``results="summary"`` omits the reports of single shards from the result. ``progress`` (default:
    True) draws a progress bar if standard error is a terminal.
    """

    max_records_per_second: float | None
    max_bytes_per_second: float | None
    repartition: Literal["kafka"] | None
    results: Literal["shards", "summary"]
    progress: bool
    shards: int | None
    shard_by: str | Sequence[str] | None


OF_THE_PRODUCER = frozenset({*ClientOptions.__annotations__, "bootstrap_servers"})
OF_THE_WRITER = frozenset(WriterOptions.__annotations__) - OF_THE_PRODUCER | {"dead_letter_topic"}
"""Options that producers do not get. Tasks send dead letters themselves."""
OF_THE_JOB = frozenset(WriteOptions.__annotations__) - OF_THE_PRODUCER - OF_THE_WRITER
"""Options of ``write`` that a single task does not have."""
LIKE = 0.75
"""Similarity, from 0 to 1, from which an unknown name is taken for a mistyped one."""


PREFIX = "kafka."
"""Prefix of the producer's options among the options of a Spark source or sink."""


def producer_option(name: str) -> str:
    """The producer's name of a ``kafka.*`` option. Brokers have one name, dots or underscores."""
    name = name.removeprefix(PREFIX)
    return "bootstrap_servers" if plain_name(name) == "bootstrap_servers" else name


_Options = TypeVar("_Options", bound=Mapping[str, Any])


def concealed_for_tasks(options: _Options) -> _Options:
    """As ``kprod.config.reading.concealed``, but pickles include the secrets, for the tasks.

    Every function that gets options from an application calls this first.
    """
    own, producers = divided(options, {*OF_THE_WRITER, *OF_THE_JOB, "output"})
    registry = own.get("schema_registry")
    if isinstance(registry, str):  # its address may have a login
        own["schema_registry"] = Secret(registry, "schema_registry")
    hidden: Any = {
        name: Secret(exposed(value), name, may_be_pickled=True)
        if isinstance(value, Secret)
        else value
        for name, value in {**own, **concealed(producers)}.items()
    }
    return cast(_Options, hidden)


def concealed_source(options: Mapping[str, Any]) -> dict[str, Any]:
    """As ``concealed_for_tasks``, for options of ``format("kprod")``, which are strings."""
    return {given: _concealed_text(given.lower(), text) for given, text in options.items()}


def _concealed_text(name: str, text: Any) -> Any:
    name = "schema_registry" if name.replace("_", "") == "schemaregistry" else name
    if name != "schema_registry" and not name.startswith(PREFIX):
        return text
    (hidden,) = concealed_for_tasks({name.removeprefix(PREFIX): text}).values()
    return hidden


def divided(
    options: Mapping[str, Any], names: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options with these names, in any spelling, and the other options as they are given.

    Raises ConfigError if one of these is set twice.
    """
    others = {name: value for name, value in options.items() if plain_name(name) not in names}
    return by_name({n: value for n, value in options.items() if n not in others}), others


def check_names(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown producer option that resembles an option of the writer."""
    producers = {plain_name(each) for one in OPTIONS.values() for each in one.spellings}
    known = sorted({*OF_THE_WRITER, *OF_THE_JOB, "output"})
    for name in options:
        if plain_name(name) not in producers:
            close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=LIKE)
            if close:
                raise ConfigError(f"unknown option {name!r}; did you mean {close[0]!r}?")


def resolved(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the placeholders in their strings replaced. Call it only in a worker.

    Raises ConfigError with the name of the placeholder, never with its value.
    """
    return concealed({name: _resolved(name, value) for name, value in options.items()})


def _resolved(name: str, value: Any) -> Any:
    found = exposed(value)
    if has_placeholder(found):
        found = filled(found)
    return Secret(found, name) if isinstance(value, Secret) else found


STAND_IN = "known-on-the-executors:9092"

BATCH_JOB: Mapping[str, Any] = {
    "linger_ms": 50,
    "batch_size": 131_072,
    "compression_type": "lz4",
}
"""Defaults of a job. Its batches are larger than in a service, for which milliseconds matter."""

ONE_PARTITION_A_TASK = 1_048_576
"""The batch size if each task writes to one partition, so that a request has only one batch.

It is the maximum size that brokers accept by default.
"""
IN_TRANSACTIONS: Mapping[str, Any] = {"transaction_timeout_ms": 600_000}
"""Default of a job that writes in transactions. Brokers allow 15 minutes by default."""
SIZES = ("batch_size", "batch_max_size", "max_request_size", "buffer_memory")


def with_large_batches(options: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``options``. ``batch_size`` is 1 MiB, unless one of ``SIZES`` is set."""
    sizes = [name for name in SIZES if says(options, name) or name in of_profile(options)]
    return dict(options) if sizes else {**options, "batch_size": ONE_PARTITION_A_TASK}


def says(options: Mapping[str, Any], name: str) -> bool:
    """Whether the options contain this option of the producer, in any spelling."""
    return any(option_name(each) == name for each in options)


def job_options(options: Mapping[str, Any], *, transactional: bool = False) -> dict[str, Any]:
    """``options`` with the defaults of a job. Raises ConfigError for invalid options.

    ``transactional``: the job writes in transactions.
    """
    if says(options, "transactional_id"):
        raise ConfigError(
            "transactional_id: tasks of one job cannot share an id; use"
            ' delivery="exactly_once", and kprod assigns an id to each task'
        )
    defaults = {**BATCH_JOB, **(IN_TRANSACTIONS if transactional else {})}
    completed = with_defaults(options, defaults)
    config_of(
        {**completed, "transactional_id": "named by the task"} if transactional else completed
    )
    return completed


def config_of(options: Mapping[str, Any]) -> ProducerConfig:
    """The configuration as the driver knows it: without a login that only tasks can read.

    Tasks replace a placeholder for the brokers, or for the whole ``sasl_jaas_config``. Raises
    ConfigError for an invalid option.
    """
    named = {option_name(name): value for name, value in options.items()}
    is_hidden = _is_placeholder(named.get("sasl_jaas_config"))
    known: dict[str, Any] = {}
    for spelled, value in options.items():
        name = option_name(spelled)
        if name == "bootstrap_servers" and has_placeholder(value):
            known[spelled] = STAND_IN
        elif is_hidden and name == "security_protocol" and isinstance(value, str):
            known[spelled] = value.upper().removeprefix("SASL_")
        elif not (is_hidden and name.startswith("sasl_")):
            known[spelled] = value
    return ProducerConfig.from_options(known)


def _is_placeholder(value: Any) -> bool:
    text = exposed(value)  # here only: an error of the caller would show it in its traceback
    return has_placeholder(text) and text.startswith("${")


def fingerprint_of(options: Mapping[str, Any]) -> str:
    """A text that is equal for equal options. Raises ConfigError if an option cannot be pickled."""
    try:
        return hashlib.sha256(_pickled(sorted(options.items()))).hexdigest()
    except Exception as error:
        stuck = sorted(name for name, value in options.items() if not _ships(value))
        raise ConfigError(
            f"options {stuck} cannot be sent to the executors: {error}. Pass plain values, "
            "functions and classes. Create objects with sockets, locks or files on the executor"
        ) from error


def _ships(value: Any) -> bool:
    try:
        _pickled(value)
    except Exception:  # whatever an object's own __reduce__ raises
        return False
    return True


def _pickled(value: Any) -> bytes:
    pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return pickled
