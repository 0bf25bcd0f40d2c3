"""Stream files into a topic, each line once, however often the query is started again.

    python examples/spark_stream_exactly_once.py INPUT CHECKPOINT --bootstrap-servers localhost:9092

Consumers read with isolation.level=read_committed.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from kprod.spark import sharded


def main() -> None:
    """Write what is new below INPUT, and end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("input", help="folder of text files")
    parser.add_argument("checkpoint", help="folder that remembers what was written")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", default="orders")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("lines to Kafka").getOrCreate()
    lines = spark.readStream.text(arguments.input)
    query = (
        sharded(lines, 4)  # a retried batch has the same rows in the same shards
        .writeStream.format("kprod")
        .option("kafka.bootstrap.servers", arguments.bootstrap_servers)
        .option("topic", arguments.topic)
        .option("delivery", "exactly_once")
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
