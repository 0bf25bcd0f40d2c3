"""What is compared: each way writes the same frame to the same broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

TOPIC = "t"
TUNED = {"linger.ms": 50, "batch.size": 131_072, "compression.type": "lz4"}
"""What kprod sets for a job: the same for everyone."""

Way = Callable[[Any, str], None]


def nothing(batches: Iterator[Any]) -> Iterator[Any]:
    """Reads the record batches, as a writer must, and answers with one row."""
    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": [rows]})


def no_op(frame: Any, servers: str) -> None:
    """What Spark takes to hand the rows to Python at all."""
    frame.mapInArrow(nothing, "rows bigint").collect()


def kprod_write(frame: Any, servers: str, **options: Any) -> None:
    """``kprod.spark.write``."""
    from kprod.spark import write

    result = write(frame, TOPIC, bootstrap_servers=servers, progress=False, **options)
    assert result.records == frame.count_of_rows


def spark_sink(frame: Any, servers: str, **options: Any) -> None:
    """Spark's own Kafka sink."""
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", servers)
    for name, value in options.items():
        writer = writer.option(f"kafka.{name}", str(value))
    writer.option("topic", TOPIC).save()


def confluent_recipe(frame: Any, servers: str) -> None:
    """The usual ``foreachPartition`` with confluent-kafka, with the same batches."""

    def send(rows: Iterable[Any]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": servers, **TUNED})
        for row in rows:
            while True:
                try:
                    producer.produce(TOPIC, key=row.key, value=bytes(row.value))
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush()

    frame.foreachPartition(send)


def iterate_rows(frame: Any, servers: str) -> None:
    """Merely looks at every row of an RDD."""
    frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()


def kprod_rows(frame: Any, servers: str) -> None:
    """``rdd.mapPartitions(partition_writer(...))``."""
    from kprod.spark import partition_writer

    frame.rdd.mapPartitions(partition_writer(TOPIC, bootstrap_servers=servers)).collect()


WAYS: dict[str, Way] = {
    "no-op mapInArrow": no_op,
    "kprod write": kprod_write,
    "kprod write repartitioned": lambda f, s: kprod_write(f, s, repartition="kafka"),
    "Spark sink tuned": lambda f, s: spark_sink(f, s, **TUNED),
    "Spark sink defaults": spark_sink,
    "confluent foreachPartition": confluent_recipe,
    "iterate an RDD": iterate_rows,
    "kprod mapPartitions": kprod_rows,
}
