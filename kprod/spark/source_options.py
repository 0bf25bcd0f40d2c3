"""The options of ``format("kprod")``: those of Spark's own Kafka sink, and kprod's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kprod.config.reading import from_text
from kprod.errors import ConfigError
from kprod.intake.arguments import check_topic
from kprod.spark.partition_writer import PartitionWriter, task_writer
from kprod.spark.writer_options import NAMES

PREFIX = "kafka."
COLUMN = "columns."
SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname", "includeheaders"})
"""What Spark hands to every sink, and what its Kafka format takes for sources."""

NO_BROKERS = (
    "kafka.bootstrap.servers: the option is missing. (Spark hands the OPTIONS of a table to no"
    ' Python data source: instead of INSERT INTO write df.write.format("kprod").options(...)'
    '.mode("append").save(), or kprod.spark.write)'
)

NUMBERS = ("schema_id", "max_row_errors")
RATES = ("maxrecordspersecond", "maxbytespersecond", "repartition")
PLACES = ("shards", "shardby")
OWN = {name.replace("_", ""): name for name in sorted(NAMES - {"columns"})}


def source_writer(options: Mapping[str, str]) -> PartitionWriter:
    """The writer that the options describe; the case of their names does not matter.

    ``kafka.bootstrap.servers`` and other ``kafka.*`` are the producer's, ``topic`` wins over the
    column, ``columns.value`` and the like name columns, and those of ``WriterOptions`` are written
    ``valueFormat``, ``onRowError``, ``deadLetterTopic``. Raises ConfigError for any other.
    """
    producer: dict[str, Any] = {}
    own: dict[str, Any] = {}
    columns: dict[str, str] = {}
    for given, text in options.items():
        name = given.lower()
        if name.startswith(PREFIX):
            producer[_producers(given[len(PREFIX) :].lower())] = from_text(
                given[len(PREFIX) :], text
            )
        elif name.startswith(COLUMN):
            columns[name[len(COLUMN) :]] = text
        elif name.replace("_", "") in OWN:
            own_name = OWN[name.replace("_", "")]
            own[own_name] = _number(given, text) if own_name in NUMBERS else text
        elif name in ("topic", "timeout"):
            own[name] = float(_number(given, text)) if name == "timeout" else check_topic(text)
        elif name not in SPARKS_OWN:
            raise _unknown(given)
    if "bootstrap.servers" not in producer:
        raise ConfigError(NO_BROKERS)
    servers = producer.pop("bootstrap.servers")
    return task_writer(
        own.pop("topic", None), bootstrap_servers=servers, columns=columns, **own, **producer
    )


def _producers(name: str) -> str:
    if name in ("key.serializer", "value.serializer"):
        raise ConfigError(
            f"kafka.{name} is not taken: keys and values are binary or text columns; say"
            ' valueFormat "json" or "avro", or make the bytes in the DataFrame'
        )
    return name


def _unknown(given: str) -> ConfigError:
    if given.lower().replace("_", "") in PLACES:
        return ConfigError(
            f"{given}: a data source cannot move rows; write kprod.spark.sharded(df, shards=8)"
        )
    if given.lower().replace("_", "") in RATES:
        return ConfigError(
            f"{given}: a data source cannot do that; kprod.spark.write and"
            " kprod.spark.foreach_batch can"
        )
    return ConfigError(
        f"unknown option {given!r}; those of the producer are written kafka.NAME, others are:"
        f" topic, timeout, columns.ROLE, {', '.join(map(_camel, sorted(OWN.values())))}"
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name}: expected a whole number; got {text!r}") from None
