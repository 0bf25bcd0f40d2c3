"""What is compared: each way writes the same rows to the same broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks.spark.rows import Rows

TUNED = {"linger.ms": 50, "batch.size": 131_072, "compression.type": "lz4"}
"""What kprod sets for a job: the same for everyone."""

Way = Callable[[Rows, str, str], None]
"""Takes the rows, the broker's address, and a topic."""


def nothing(batches: Iterator[Any]) -> Iterator[Any]:
    """Reads the record batches, as a writer must, and answers with one row."""
    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": [rows]})


def no_op(rows: Rows, servers: str, topic: str) -> None:
    """What Spark takes to hand the rows to Python at all."""
    rows.frame.mapInArrow(nothing, "rows bigint").collect()


def kprod_write(rows: Rows, servers: str, topic: str, **options: Any) -> None:
    """``kprod.spark.write``."""
    from kprod.spark import write

    write(rows.frame, topic, bootstrap_servers=servers, progress=False, **options)


def repartitioned(rows: Rows, servers: str, topic: str) -> None:
    """The same, each Kafka partition written by one task."""
    kprod_write(rows, servers, topic, repartition="kafka")


def spark_sink(rows: Rows, servers: str, topic: str) -> None:
    """Spark's own Kafka sink at its defaults."""
    _saved(rows.frame.write, servers, topic)


def tuned_sink(rows: Rows, servers: str, topic: str) -> None:
    """Spark's own Kafka sink with the batches and the codec of kprod."""
    options = {f"kafka.{name}": str(value) for name, value in TUNED.items()}
    _saved(rows.frame.write.options(**options), servers, topic)


def _saved(writer: Any, servers: str, topic: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    writer.format("kafka").options(**options).save()


def confluent_recipe(rows: Rows, servers: str, topic: str) -> None:
    """The usual ``foreachPartition`` with confluent-kafka, with the same batches."""

    def send(rows: Iterable[Any]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": servers, **TUNED})
        for row in rows:
            while True:
                try:
                    producer.produce(topic, key=row.key, value=bytes(row.value))
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush()

    rows.frame.foreachPartition(send)


def iterate_rows(rows: Rows, servers: str, topic: str) -> None:
    """Merely looks at every row of an RDD."""
    rows.frame.rdd.mapPartitions(lambda part: [sum(1 for _ in part)]).collect()


def kprod_rows(rows: Rows, servers: str, topic: str) -> None:
    """``rdd.mapPartitions(partition_writer(...))``."""
    from kprod.spark import partition_writer

    rows.frame.rdd.mapPartitions(partition_writer(topic, bootstrap_servers=servers)).collect()


NO_OP = "no-op mapInArrow"
WRITE = "kprod write"
REPARTITIONED = "kprod write repartitioned"
TUNED_SINK = "Spark sink tuned"
DEFAULT_SINK = "Spark sink defaults"
CONFLUENT = "confluent foreachPartition"
ITERATE = "iterate an RDD"
ROWS = "kprod mapPartitions"

WAYS: dict[str, Way] = {
    NO_OP: no_op,
    WRITE: kprod_write,
    REPARTITIONED: repartitioned,
    TUNED_SINK: tuned_sink,
    DEFAULT_SINK: spark_sink,
    CONFLUENT: confluent_recipe,
    ITERATE: iterate_rows,
    ROWS: kprod_rows,
}
WRITE_NOTHING = {NO_OP, ITERATE}
