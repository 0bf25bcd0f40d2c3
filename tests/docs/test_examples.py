"""Every Python example of the README and the docs runs as it is printed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kprod.broker import EmbeddedBroker
from tests.spark.conftest import CLUSTER
from tests.support.programs import ACTIVATED, run_python
from tests.support.schema_registry import FakeRegistry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


ALL = {
    f"{page.name}-{number}": code
    for page in PAGES
    for number, code in enumerate(EXAMPLE.findall(page.read_text()), start=1)
}
OF_SPARK = {name: code for name, code in ALL.items() if "pyspark" in code}


REGISTRY, KAFKA = "http://localhost:8081", "localhost:9092"
"""The addresses of the pages, in place of which an example finds a registry and a broker."""


@pytest.fixture(scope="module")
def at_hand() -> Iterator[Callable[[str], str]]:
    """An example with the addresses of a registry and of a broker that are there."""
    with FakeRegistry() as registry, EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        yield lambda code: code.replace(REGISTRY, registry.url).replace(KAFKA, servers)


IN_ONE_PROCESS = """
import json, traceback
with open("job.json") as file:
    job = json.load(file)
if job["session"]:
    from pyspark.sql import SparkSession
    builder = SparkSession.builder.master("local[2]")
    for name, value in job["session"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()  # which examples find by their own
failures = {}
for name, code in job["examples"].items():
    try:
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    except BaseException as error:
        if not (isinstance(error, SystemExit) and not error.code):
            failures[name] = traceback.format_exc()
with open("failures.json", "w") as file:
    json.dump(failures, file)
"""


def failures_of(
    examples: dict[str, str], folder: Path, session: dict[str, str] | None = None
) -> dict[str, str]:
    """All examples run by one process, each with names of its own: why those that failed did."""
    (folder / "job.json").write_text(json.dumps({"examples": examples, "session": session}))
    run_python("-c", IN_ONE_PROCESS, cwd=folder, env=ACTIVATED, seconds=3600)
    found: dict[str, str] = json.loads((folder / "failures.json").read_text())
    return found


@pytest.fixture(scope="module")
def failures(
    tmp_path_factory: pytest.TempPathFactory, at_hand: Callable[[str], str]
) -> dict[str, str]:
    examples = {name: at_hand(code) for name, code in ALL.items() if name not in OF_SPARK}
    return failures_of(examples, tmp_path_factory.mktemp("examples"))


@pytest.mark.parametrize("name", [name for name in ALL if name not in OF_SPARK])
def test_example_runs(name: str, failures: dict[str, str]) -> None:
    assert name not in failures, failures[name]


@pytest.mark.full
@pytest.mark.timeout(600)
def test_examples_of_spark_run_one_after_the_other(
    tmp_path: Path, at_hand: Callable[[str], str]
) -> None:
    """A session takes longer to start than an example to run: they share one."""
    examples = {name: at_hand(code) for name, code in OF_SPARK.items()}
    assert failures_of(examples, tmp_path, CLUSTER) == {}


def test_there_are_examples() -> None:
    assert len(ALL) > len(OF_SPARK) > 1
