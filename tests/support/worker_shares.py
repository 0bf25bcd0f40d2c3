"""Which tests a worker process runs together, and in which order: a scheduler for pytest-xdist.

Its own ``--dist=loadgroup`` does not work with pytest 9.2: every test is a group of its own.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler.protocol import Scheduling
    from xdist.workermanage import WorkerController

ROOT = Path(__file__).parents[2]
SHARED = {"shared_kafka": "shared_kafka", "cluster: SparkSession": "spark_cluster"}
"""Text in a file that uses an expensive fixture, and the name of the share of all such files."""

ALONE = (
    "tests/simulation/test_seeds.py",
    "tests/spark/exactly_once/test_protocol.py",
    "tests/spark/test_pipeline_command.py",
    "tests/integration/cli/test_demo.py",
)
"""Files with long independent tests: any worker runs any of them."""


LONGEST_FIRST = (
    "spark_cluster",
    "shared_kafka",
    "tests/spark/test_client_without_jvm.py",
    "tests/spark/test_declarative_pipelines.py",
    "tests/examples/",
    "tests/spark/exactly_once/test_cancelled.py",
    "tests/spark/test_pipeline_command.py",
    "tests/docs/test_examples.py",
    "tests/integration/cli/test_demo.py",
    "tests/simulation/test_mutants.py",
    "tests/simulation/",
    "tests/fault/",
    "tests/integration/test_apache_kafka_",
    "tests/integration/lifecycle/",
    "tests/integration/security/",
    "tests/integration/cli/",
    "tests/spark/",
    "tests/integration/",
    "tests/property/",
    "tests/soak/",
)
"""Prefixes of shares that are started first, the longest one first: from two minutes to seconds."""


def share(nodeid: str) -> str:
    """The share of this test: by default all tests of its file."""
    file = nodeid.partition("::")[0]
    if file in ALONE:
        return nodeid
    return _sharing(file)


@cache
def _sharing(file: str) -> str:
    text = (ROOT / file).read_text()
    return next((name for asked, name in SHARED.items() if asked in text), file)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With workers: start the longest shares first."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_position)


def _position(item: pytest.Item) -> int:
    name = share(item.nodeid)
    starts = [name.startswith(start) for start in LONGEST_FIRST]
    return starts.index(True) if True in starts else len(LONGEST_FIRST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Hand out shares in the order in which the tests were collected."""
    from xdist.scheduler import LoadScopeScheduling

    class Shares(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
        workqueue: OrderedDict[str, dict[str, bool]]

        def _split_scope(self, nodeid: str) -> str:
            return share(nodeid)

        def _reschedule(self, node: WorkerController) -> None:
            """A replacement worker gets no share before it has collected the tests."""
            if node in self.registered_collections:
                super()._reschedule(node)

        def remove_node(self, node: WorkerController) -> str | None:
            """Remove a worker: the test that crashed it is not repeated, the rest runs next."""
            left: list[tuple[str, list[str]]] = [
                (name, [test for test, done in tests.items() if not done])
                for name, tests in self.assigned_work.pop(node).items()
            ]
            left = [(name, tests) for name, tests in left if tests]
            if not left:
                return None
            crashed = left[0][1].pop(0)
            again = {name: dict.fromkeys(tests, False) for name, tests in left if tests}
            self.workqueue = OrderedDict({**again, **self.workqueue})
            for other in self.assigned_work:
                self._reschedule(other)
            return crashed

    config.option.loadscopereorder = False
    return Shares(config, log)
