"""Write a DataFrame to a topic, with its structs as JSON.

python examples/spark_batch.py --bootstrap-servers localhost:9092
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from kprod.spark import write


def main() -> None:
    """Write 100,000 orders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", default="orders")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("orders to Kafka").getOrCreate()
    orders = spark.range(100_000).selectExpr(
        "cast(id as string) as key",
        "named_struct('id', id, 'total', cast(id * 1.5 as decimal(12, 2))) as value",
    )
    result = write(
        orders,
        arguments.topic,
        bootstrap_servers=arguments.bootstrap_servers,
        value_format="json",
    )
    print(result)
    spark.stop()


if __name__ == "__main__":
    main()
