"""Every Python example of the README and the docs runs unchanged."""

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
"""The addresses in the pages, which are replaced by those of a fake registry and a broker."""


@pytest.fixture(scope="module")
def with_addresses() -> Iterator[Callable[[str], str]]:
    """Replaces the addresses in an example."""
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
    spark = builder.getOrCreate()  # examples find the active session
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
    """Run all examples in one process, each in its own namespace; the tracebacks of failures."""
    (folder / "job.json").write_text(json.dumps({"examples": examples, "session": session}))
    run_python("-c", IN_ONE_PROCESS, cwd=folder, env=ACTIVATED, seconds=3600)
    found: dict[str, str] = json.loads((folder / "failures.json").read_text())
    return found


@pytest.fixture(scope="module")
def failures(
    tmp_path_factory: pytest.TempPathFactory, with_addresses: Callable[[str], str]
) -> dict[str, str]:
    examples = {name: with_addresses(code) for name, code in ALL.items() if name not in OF_SPARK}
    return failures_of(examples, tmp_path_factory.mktemp("examples"))


@pytest.mark.parametrize("name", [name for name in ALL if name not in OF_SPARK])
def test_an_example_runs(name: str, failures: dict[str, str]) -> None:
    assert name not in failures, failures[name]


@pytest.mark.full
@pytest.mark.timeout(600)
def test_spark_examples_run_in_one_session(
    tmp_path: Path, with_addresses: Callable[[str], str]
) -> None:
    """Starting a session takes longer than running an example."""
    examples = {name: with_addresses(code) for name, code in OF_SPARK.items()}
    assert failures_of(examples, tmp_path, CLUSTER) == {}


def test_there_are_examples() -> None:
    assert len(ALL) > len(OF_SPARK) > 1
