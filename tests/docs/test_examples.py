"""Every Python example of the README and the docs runs as it is printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


ALL = {
    f"{page.name}-{number}": code
    for page in PAGES
    for number, code in enumerate(EXAMPLE.findall(page.read_text()), start=1)
}
OF_SPARK = {name: code for name, code in ALL.items() if "pyspark" in code}
EXAMPLES = [pytest.param(code, id=name) for name, code in ALL.items() if name not in OF_SPARK]


# What activating the environment does: Spark starts its workers by looking for python3 on the path.
_ACTIVATED = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("code", EXAMPLES)
def test_example_runs(code: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=_ACTIVATED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_examples_of_spark_run_one_after_the_other(tmp_path: Path) -> None:
    """A session takes longer to start than an example to run: they share one."""
    job = {"examples": OF_SPARK, "session": SESSION}
    (tmp_path / "examples.json").write_text(json.dumps(job))
    ran = subprocess.run(
        [sys.executable, "-c", IN_ONE_SESSION],
        cwd=tmp_path,
        env=_ACTIVATED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == f"ran {len(OF_SPARK)} examples"


SESSION = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
"""What a session of seconds on a small machine needs; ``getOrCreate`` then finds it."""

IN_ONE_SESSION = """
import json, sys, traceback
from pyspark.sql import SparkSession
with open("examples.json") as file:
    job = json.load(file)
builder = SparkSession.builder.master("local[2]")
for name, value in job["session"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for name, code in job["examples"].items():
    print(f"--- {name}", file=sys.stderr)
    exec(compile(code, name, "exec"), {"__name__": "__main__"})
spark.stop()
print(f"ran {len(job['examples'])} examples")
"""


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 1
    assert len(OF_SPARK) > 1
