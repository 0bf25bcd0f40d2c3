"""The jar of Spark's Avro functions, which pyspark lacks: downloaded by Maven once."""

from __future__ import annotations

from pathlib import Path

from tests.support.maven import BUILD, fetched

VERSION = "4.2.0"
"""The newest version in Maven Central; the serializer itself is part of Spark."""

COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
ARTIFACT = f"-Dartifact=org.apache.spark:spark-avro_2.13:{VERSION}"


def jar() -> Path:
    """Its path. Raises RuntimeError when Maven cannot download it."""
    folder = BUILD / "spark-avro" / VERSION
    if why_not := fetched(folder, "Spark's functions for Avro", COPY, ARTIFACT):
        raise RuntimeError(why_not)
    return folder / f"spark-avro_2.13-{VERSION}.jar"
