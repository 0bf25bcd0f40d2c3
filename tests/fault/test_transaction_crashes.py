"""Crashes of the broker during transactions.

A workload of transactions over two partitions and a group's offsets copies the data directory
before every write of a coordinator, producer or marker. Each copy is opened as after a crash.
Committed transactions must be complete, aborted ones absent, and one without a response is either,
together with its offsets. No transaction may stay open.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker import TransactionConfig
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_files import check_directory
from kprod.broker.node import Node
from kprod.broker.protocol.api_key import ApiKey
from kprod.clock import SystemClock, wall_ms
from tests.support.tier import FULL, one_of
from tests.unit.broker.asking_producer import AskingProducer
from tests.unit.broker.nodes import ask, running_node

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, segment_index_bytes=400)
NAMES = ("one", "two")


class RecordingClock(SystemClock):
    """Calls ``record`` first: every write starts by reading the clock."""

    def __init__(self, record: Callable[[], None]) -> None:
        self._record = record
        self.wall_ms = self._wall_ms

    def _wall_ms(self) -> int:
        self._record()
        return wall_ms()


@dataclass(frozen=True)
class Outcomes:
    """The transactions that producers know as committed or aborted.

    ``unanswered`` is one whose end was requested without a response, if any.
    """

    committed: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    unanswered: int | None = None


@dataclass
class Workload:
    """Copies the data before each write, together with the known outcomes."""

    folder: Path
    version: int
    transactions: int
    rng: random.Random
    outcomes: Outcomes = field(default_factory=Outcomes)
    points: list[tuple[Path, Outcomes]] = field(default_factory=list)

    def run(self) -> None:
        """Run all transactions, alternating between two producers."""
        config = TransactionConfig(transaction_version=self.version)
        data = self.folder / "data"
        with running_node(
            data,
            log_config=CONFIG,
            transaction_config=config,
            clock=RecordingClock(self._record),
            clean=False,
        ) as node:
            node.topics.create("t", 2)
            producers = [
                AskingProducer(partial(ask, node), max(self.version, 1), name) for name in NAMES
            ]
            for producer in producers:
                assert producer.init() is ErrorCode.none
            for number in range(self.transactions):
                self._transaction(producers[number % 2], number)
            self._record()

    def _transaction(self, producer: AskingProducer, number: int) -> None:
        if self.rng.random() < 0.2:
            assert producer.init() is ErrorCode.none
        for partition in self.rng.sample([0, 1], self.rng.randint(1, 2)):
            for part in range(self.rng.randint(1, 2)):
                value = b"%d-%d" % (number, part)
                assert producer.send(value, partition=partition) is ErrorCode.none
        assert producer.commit_offset(number, group=producer.identity.name) is ErrorCode.none
        self.outcomes = replace(self.outcomes, unanswered=number)
        commits = self.rng.random() < 0.6
        assert producer.end(committed=commits) is ErrorCode.none
        kind = "committed" if commits else "aborted"
        numbers = (*getattr(self.outcomes, kind), number)
        self.outcomes = replace(self.outcomes, unanswered=None, **{kind: numbers})

    def _record(self) -> None:
        image = self.folder / f"{len(self.points):05d}"
        shutil.copytree(self.folder / "data", image)
        self.points.append((image, self.outcomes))


def check_image(image: Path, outcomes: Outcomes, version: int) -> None:
    """Open the data as after a crash and check them."""
    config = TransactionConfig(transaction_version=version)
    with running_node(image, log_config=CONFIG, transaction_config=config) as node:
        topic = node.topics.find("t")
        if topic is None:
            return
        for name in NAMES:
            producer = AskingProducer(partial(ask, node), max(version, 1), name)
            # The first attempt aborts an open transaction.
            codes = [producer.init(), producer.init()]
            assert codes[-1] is ErrorCode.none, (image, codes)
        seen = {
            int((record.value or b"").partition(b"-")[0])
            for log in topic.partitions
            for record in log.records(committed=True)
        }
        assert set(outcomes.committed) <= seen, (image, outcomes, seen)
        assert not seen & set(outcomes.aborted), (image, outcomes, seen)
        assert seen <= {*outcomes.committed, outcomes.unanswered}, (image, outcomes, seen)
        for at, name in enumerate(NAMES):
            own = [number for number in seen if number % 2 == at]
            assert offset_of(node, name) == max(own, default=-1), (image, outcomes, seen)
        for log in topic.partitions:
            assert log.last_stable_offset == log.end_offset, (image, log.where)
    errors = [found for path in image.glob("*-0") for found in check_directory(path)]
    assert not errors, (image, errors)


def offset_of(node: Node, group: str) -> int:
    """The committed offset of a group."""
    topics: list[dict[str, Any]] = [{"name": "t", "partition_indexes": [0]}]
    groups = [{"group_id": group, "topics": topics}]
    answer = ask(node, ApiKey.OFFSET_FETCH, 8, groups=groups, require_stable=True)
    part = answer.groups[0].topics[0].partitions[0]
    assert part.error_code is ErrorCode.none, (group, part)
    return int(part.committed_offset)


@pytest.mark.parametrize("version", one_of(2, 0))
def test_transactions_are_atomic_after_a_crash(version: int, tmp_path: Path) -> None:
    workload = Workload(tmp_path, version, 10 if FULL else 2, random.Random("few"))
    workload.run()
    for image, outcomes in workload.points:
        check_image(image, outcomes, version)
    assert len(workload.points) > 10
