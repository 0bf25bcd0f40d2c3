"""The jar of Spark's own Avro functions, which pyspark does not bring: fetched by Maven once"""

from __future__ import annotations

from pathlib import Path

from tests.support.maven import BUILD, fetched

VERSION = "4.2.0"
"""The newest that Maven Central has; the serializer itself is in Spark, in every version."""

COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
ARTIFACT = f"-Dartifact=org.apache.spark:spark-avro_2.13:{VERSION}"


def jar() -> Path:
    """Its path. Raises RuntimeError when Maven does not bring it."""
    folder = BUILD / "spark-avro" / VERSION
    if why_not := fetched(folder, "Spark's functions for Avro", COPY, ARTIFACT):
        raise RuntimeError(why_not)
    return folder / f"spark-avro_2.13-{VERSION}.jar"
