"""The options of a writer that are not the producer's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from kprod.errors import ConfigError
from kprod.spark.columns.payload_format import PayloadFormat, ValueSchema, payload_format
from kprod.spark.columns.record_columns import ColumnRoles
from kprod.spark.exactly_once.shard import PREFIX, Terms, terms_of
from kprod.spark.producer_options import need_broker_extra
from kprod.spark.rejected_rows import OnRowError, RowPolicy


class Delivery(StrEnum):
    """The values of ``delivery=``."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"
    ATOMIC = "atomic"


def delivery_named(name: str) -> Delivery:
    """The one of that name. Raises ConfigError."""
    try:
        return Delivery(name)
    except ValueError:
        known = ", ".join(f'"{one.value}"' for one in Delivery)
        raise ConfigError(f"delivery: expected one of {known}; got {name!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """The options of ``partition_writer`` and ``write`` about columns and rows. Immutable.

    ``columns`` names the columns of record batches by role, as ``{"timestamp": "departed"}``.

    ``value_format`` and ``key_format`` say how they become bytes: "binary" (bytes and text as they
    are), "json" (anything else as JSON; without a value column the other columns are its fields)
    or, for values, "avro", "protobuf" or "json_schema" with ``subject`` and ``schema_registry``
    (its address, or a ``SchemaRegistry``): the driver registers ``avro_schema``, ``json_schema``
    (JSON text) or ``protobuf_message`` (the class, or ``"package.module:Class"``) there; without
    one of the first two it takes the subject's latest. "avro" without a subject takes
    ``avro_schema`` and ``schema_id`` (None writes no frame).

    A row that no record can be made of, or that the broker refuses, fails the task, is skipped and
    counted, or goes to ``dead_letter_topic`` (``on_row_error``: "fail", "skip", "dead_letter");
    more than ``max_row_errors`` of them in one task fail it in any case.

    ``delivery`` is "at_least_once", "exactly_once" or "atomic". The rest is for the last two:
    ``job_id`` names a job that may be started again, ``transaction_prefix`` begins the names of
    transactional ids and groups, and markers are committed for ``marker_topic``, by default the
    topic.
    """

    columns: Mapping[str, str] | None = None
    value_format: str = "binary"
    key_format: str = "binary"
    avro_schema: str | None = None
    schema_id: int | None = None
    json_schema: str | None = None
    protobuf_message: Any = None
    subject: str | None = None
    schema_registry: Any = field(default=None, repr=False)  # its address may hold a password
    on_row_error: OnRowError = "fail"
    dead_letter_topic: str | None = None
    max_row_errors: int | None = None
    delivery: str = Delivery.AT_LEAST_ONCE
    job_id: str | None = None
    transaction_prefix: str = PREFIX
    marker_topic: str | None = None

    def roles(self, *, key: str, value: str) -> ColumnRoles:
        """The columns of record batches. Raises ConfigError."""
        named = {role: name for role, name in (("key", key), ("value", value)) if name != role}
        return ColumnRoles({**named, **(self.columns or {})}, packs=self.value_format != "binary")

    def value(self) -> PayloadFormat:
        """How values become bytes. Raises ConfigError, and what a schema registry refuses."""
        schema = ValueSchema(
            of_kind={
                "avro": self.avro_schema,
                "json_schema": self.json_schema,
                "protobuf": self.protobuf_message,
            },
            schema_id=self.schema_id,
            subject=self.subject,
            registry=self.schema_registry,
        )
        return payload_format("value", self.value_format, schema)

    def key(self) -> PayloadFormat:
        """How keys become bytes. Raises ConfigError."""
        return payload_format("key", self.key_format)

    def terms(self, topic: str | None) -> Terms | None:
        """How it is made sure that rows are there once, if it is. Raises ConfigError."""
        delivery = delivery_named(self.delivery)
        if delivery is Delivery.AT_LEAST_ONCE:
            if (self.job_id, self.marker_topic, self.transaction_prefix) != (None, None, PREFIX):
                raise ConfigError(
                    "job_id, marker_topic and transaction_prefix are for"
                    ' delivery="exactly_once" and "atomic"'
                )
            return None
        if delivery is Delivery.ATOMIC:
            need_broker_extra('delivery="atomic"')
        return terms_of(
            topic,
            prefix=self.transaction_prefix,
            job_id=self.job_id,
            marker_topic=self.marker_topic,
            is_atomic=delivery is Delivery.ATOMIC,
        )

    def policy(self) -> RowPolicy:
        """The policy for rows that are no records. Raises ConfigError."""
        return RowPolicy(
            on_row_error=self.on_row_error,
            dead_letter_topic=self.dead_letter_topic,
            most=self.max_row_errors,
        )


NAMES = frozenset(option.name for option in fields(WriterOptions))


def take_writer_options(options: Mapping[str, Any]) -> tuple[WriterOptions, dict[str, Any]]:
    """Split options into those of a writer and those of the producer."""
    own = {name: value for name, value in options.items() if name in NAMES}
    rest = {name: value for name, value in options.items() if name not in NAMES}
    return WriterOptions(**own), rest
