"""Reads a topic as a DataFrame: ``spark.read.format("kprod")``, for batch queries only."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kprod.clock import monotonic
from kprod.config import ProducerConfig
from kprod.config.reading import from_text
from kprod.config.secret import exposed
from kprod.errors import ConfigError
from kprod.intake.arguments import check_topic
from kprod.schema.columns.record_plan import EPOCH, MILLISECOND
from kprod.spark.options import PREFIX, concealed_source, producer_option, resolved

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
"""The columns of Spark's own source with ``includeHeaders``, except ``timestampType``."""

ISOLATION = {"read_committed": True, "read_uncommitted": False}
EARLIEST, LATEST = -2, -1  # as Spark's own source counts
SPARKS_OWN = frozenset({"path", "includeheaders"})
OWN = frozenset({"isolation", "startingoffsets", "endingoffsets", "failondataloss"})
TRUTHS = {"true": True, "false": False}
STREAMING = (
    'format("kprod") cannot read streams: use Spark\'s own source, format("kafka"), from the'
    " package spark-sql-kafka-0-10"
)


@dataclass
class Span(InputPartition):
    """The records of one partition from offset ``start`` up to, but not including, ``end``."""

    number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The topic and offsets to read, and the options for connecting. Immutable.

    ``starting`` and ``ending`` are EARLIEST, LATEST, or the offset of each partition.
    ``committed``: leave out the records of aborted and of open transactions.
    """

    topic: str
    client: Mapping[str, Any] = field(repr=False)  # those of ``concealed_source``
    committed: bool = True
    starting: int | Mapping[int, int] = EARLIEST
    ending: int | Mapping[int, int] = LATEST
    fails_on_loss: bool = True
    """Whether offsets that the topic does not have, or no longer has, are an error."""


class TopicReader(DataSourceReader):
    """Reads each partition of the topic in one task, up to the end it had when the job started."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The span of offsets for each task. Runs on the driver; raises KprodError.

        It raises ConfigError if the given offsets omit a partition, or if a partition does not have
        its given offset, for example because its first records were deleted.
        """
        from kprod.admin.cluster_client import ClusterClient
        from kprod.admin.partition_reader import readers

        options = self._options
        config = ProducerConfig.from_options(resolved(options.client))
        spans: list[InputPartition] = []
        with ClusterClient(config, monotonic() + config.max_block_ms / 1000) as cluster:
            logs = readers(cluster, options.topic, committed=options.committed)
            _check_named("startingOffsets", options.starting, options.topic, logs.keys())
            _check_named("endingOffsets", options.ending, options.topic, logs.keys())
            for number, log in logs.items():
                end = log.listed_end() if options.committed else log.end()
                spans.append(self._span(number, log.start(), end))
        return spans

    def _span(self, number: int, first: int, last: int) -> Span:
        """The requested part of a partition that has the offsets from ``first`` to ``last``."""
        options = self._options
        start = _offset(options.starting, number, first, last)
        end = _offset(options.ending, number, first, last)
        if options.fails_on_loss and not first <= start <= end <= last:
            raise ConfigError(
                f"{options.topic}-{number} has offsets from {first} to {last}; requested were"
                f" {start} to {end}. Records before {first} were deleted, for example by retention;"
                " with failOnDataLoss=false, the records that still exist are read"
            )
        return Span(number, max(start, first), min(end, last))

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of one partition. Runs in a task; raises KprodError."""
        from kprod.admin.cluster_client import ClusterClient
        from kprod.admin.partition_reader import readers

        assert isinstance(partition, Span)
        topic, number, committed = self._options.topic, partition.number, self._options.committed
        config = ProducerConfig.from_options(resolved(self._options.client))
        with ClusterClient(config) as cluster:  # as long as it takes
            log = readers(cluster, topic, committed=committed)[number]
            for record in log.read(partition.start, partition.end):
                headers = [Row(key=name, value=value) for name, value in record.headers]
                moment = _moment(record.timestamp)
                yield (
                    record.key,
                    record.value,
                    topic,
                    number,
                    record.offset,
                    moment,
                    headers or None,
                )


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse options of ``spark.read``; the case of their names does not matter.

    ``kafka.*`` are the producer's options for connecting. The others are ``topic`` (or
    ``subscribe``), ``isolation`` (or ``kafka.isolation.level``), ``startingOffsets``,
    ``endingOffsets`` and ``failOnDataLoss``. Raises ConfigError.
    """
    options = concealed_source(options)
    client: dict[str, Any] = {}
    own: dict[str, str] = {}
    for given, text in options.items():
        name = given.lower()
        if name == "kafka.isolation.level":
            own["isolation"] = exposed(text)  # hidden, as what no producer knows
        elif name.startswith(PREFIX):
            client[producer_option(name)] = from_text(given[len(PREFIX) :], text)
        elif name in ("topic", "subscribe"):
            own["topic"] = text
        elif name in OWN:
            own[name] = text
        elif name not in SPARKS_OWN:
            raise ConfigError(
                f"unknown option {given!r}; connection options begin with kafka., the others are:"
                " topic, isolation, startingOffsets, endingOffsets, failOnDataLoss"
            )
    if "bootstrap_servers" not in client:
        raise ConfigError("kafka.bootstrap.servers: the option is missing")
    if "topic" not in own:
        raise ConfigError("topic: the option is missing")
    topic = check_topic(own["topic"])
    loss = own.get("failondataloss", "true").lower()
    return ReadOptions(
        topic=topic,
        client=client,
        committed=_choice("isolation", own.get("isolation", "read_committed"), ISOLATION),
        starting=_offsets("startingOffsets", own.get("startingoffsets", "earliest"), topic),
        ending=_offsets("endingOffsets", own.get("endingoffsets", "latest"), topic),
        fails_on_loss=_choice("failOnDataLoss", loss, TRUTHS),
    )


def _choice(name: str, text: str, choices: Mapping[str, bool]) -> bool:
    if text not in choices:
        raise ConfigError(f"{name}: expected one of {sorted(choices)}; got {text!r}")
    return choices[text]


def _offsets(name: str, text: str, topic: str) -> int | dict[int, int]:
    """``earliest``, ``latest``, or offsets parsed from JSON in the format of Spark's own source."""
    known = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if known is not None:
        return known
    try:
        offsets = json.loads(text)
        return {int(number): int(offset) for number, offset in offsets.get(topic, offsets).items()}
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(
            f'{name}: expected "earliest", "latest", or JSON such as {{"{topic}": {{"0": 23}}}};'
            f" got {text!r}"
        ) from None


def _check_named(
    name: str, offsets: int | Mapping[int, int], topic: str, partitions: Collection[int]
) -> None:
    """Raise ConfigError unless all partitions have an offset, as Spark's own source does."""
    if not isinstance(offsets, int) and offsets.keys() != set(partitions):
        raise ConfigError(
            f"{name}: {topic!r} has the partitions {sorted(partitions)}. Each needs an offset, -2"
            f" (earliest) or -1 (latest); got {sorted(offsets)}"
        )


def _offset(offsets: int | Mapping[int, int], number: int, first: int, last: int) -> int:
    offset = offsets if isinstance(offsets, int) else offsets[number]
    return {EARLIEST: first, LATEST: last}.get(offset, offset)


def _moment(timestamp_ms: int) -> datetime.datetime | None:
    """The timestamp as a datetime.

    None if it is missing or out of range: some producers write microseconds.
    """
    if timestamp_ms < 0:
        return None
    try:
        return EPOCH + timestamp_ms * MILLISECOND
    except OverflowError:
        return None
