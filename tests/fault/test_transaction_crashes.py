"""Crashes of the broker amid transactions.

Each point is what is on disk before a coordinator, a producer or a marker writes something: a
workload of transactions over two partitions and a group's offsets is recorded with a copy of the
data at each of these moments. The data are opened as after a crash. What was committed has to be
there as a whole, what was aborted must not be, and a transaction whose producer had no answer is
one of the two, with its offsets. Nothing may stay undecided.
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
    """Calls ``record`` before it tells the time, as whoever writes asks for it first."""

    def __init__(self, record: Callable[[], None]) -> None:
        self._record = record
        self.wall_ms = self._wall_ms

    def _wall_ms(self) -> int:
        self._record()
        return wall_ms()


@dataclass(frozen=True)
class Known:
    """What producers were told: the numbers of the transactions that ended in each way.

    ``asked`` is the one, if any, whose end was asked for and not answered.
    """

    committed: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    asked: int | None = None


@dataclass
class Workload:
    """Records a copy of the data before each write, with what was known then."""

    folder: Path
    version: int
    transactions: int
    chance: random.Random
    known: Known = field(default_factory=Known)
    points: list[tuple[Path, Known]] = field(default_factory=list)

    def run(self) -> None:
        """All transactions, of two producers in turn."""
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
        if self.chance.random() < 0.2:
            assert producer.init() is ErrorCode.none
        for partition in self.chance.sample([0, 1], self.chance.randint(1, 2)):
            for part in range(self.chance.randint(1, 2)):
                value = b"%d-%d" % (number, part)
                assert producer.send(value, partition=partition) is ErrorCode.none
        assert producer.commit_offset(number, group=producer.identity.name) is ErrorCode.none
        self.known = replace(self.known, asked=number)
        commits = self.chance.random() < 0.6
        assert producer.end(committed=commits) is ErrorCode.none
        kind = "committed" if commits else "aborted"
        told = (*getattr(self.known, kind), number)
        self.known = replace(self.known, asked=None, **{kind: told})

    def _record(self) -> None:
        image = self.folder / f"{len(self.points):05d}"
        shutil.copytree(self.folder / "data", image)
        self.points.append((image, self.known))


def judge(image: Path, known: Known, version: int) -> None:
    """Open the data as after a crash. ``AssertionError`` says what is wrong with them."""
    config = TransactionConfig(transaction_version=version)
    with running_node(image, log_config=CONFIG, transaction_config=config) as node:
        topic = node.topics.find("t")
        if topic is None:
            return
        for name in NAMES:
            producer = AskingProducer(partial(ask, node), max(version, 1), name)
            # An open transaction is aborted first, at the first attempt.
            codes = [producer.init(), producer.init()]
            assert codes[-1] is ErrorCode.none, (image, codes)
        seen = {
            int((record.value or b"").partition(b"-")[0])
            for log in topic.partitions
            for record in log.records(committed=True)
        }
        assert set(known.committed) <= seen, (image, known, seen)
        assert not seen & set(known.aborted), (image, known, seen)
        assert seen <= {*known.committed, known.asked}, (image, known, seen)
        for at, name in enumerate(NAMES):
            mine = [number for number in seen if number % 2 == at]
            assert offset_of(node, name) == max(mine, default=-1), (image, known, seen)
        for log in topic.partitions:
            assert log.last_stable_offset == log.end_offset, (image, log.where)
    problems = [found for path in image.glob("*-0") for found in check_directory(path)]
    assert not problems, (image, problems)


def offset_of(node: Node, group: str) -> int:
    """How far a group has come."""
    topics: list[dict[str, Any]] = [{"name": "t", "partition_indexes": [0]}]
    groups = [{"group_id": group, "topics": topics}]
    answer = ask(node, ApiKey.OFFSET_FETCH, 8, groups=groups, require_stable=True)
    part = answer.groups[0].topics[0].partitions[0]
    assert part.error_code is ErrorCode.none, (group, part)
    return int(part.committed_offset)


@pytest.mark.parametrize("version", one_of(2, 0))
def test_crashes_leave_every_transaction_whole(version: int, tmp_path: Path) -> None:
    workload = Workload(tmp_path, version, 10 if FULL else 2, random.Random("few"))
    workload.run()
    for image, known in workload.points:
        judge(image, known, version)
    assert len(workload.points) > 10
