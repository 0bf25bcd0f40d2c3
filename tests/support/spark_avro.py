"""The jar of Spark's own Avro functions, which pyspark does not bring: fetched by Maven once"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

VERSION = "4.2.0"
"""The newest that Maven Central has; the serializer itself is in Spark, in every version."""

ARTIFACT = f"org.apache.spark:spark-avro_2.13:{VERSION}"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
CACHE = Path(__file__).parents[2] / "build" / "spark-avro"
SECONDS = 280


def jar() -> Path:
    """Its path. Raises RuntimeError when Maven does not bring it."""
    found = CACHE / f"spark-avro_2.13-{VERSION}.jar"
    if found.is_file():
        return found
    if shutil.which("mvn") is None:
        raise RuntimeError("Spark's Avro functions come by Maven, and there is no mvn on PATH")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        command = ["mvn", "--quiet", "--batch-mode", COPY, f"-Dartifact={ARTIFACT}"]
        command += [f"-DoutputDirectory={scratch}"]
        ran = subprocess.run(
            command, cwd=scratch, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        if ran.returncode != 0:
            raise RuntimeError(f"Maven could not bring {ARTIFACT}:\n{ran.stdout}{ran.stderr}")
        Path(scratch, found.name).rename(found)
    return found
