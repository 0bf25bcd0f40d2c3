"""Crashes of the embedded broker's log.

Each point is what is on disk at some moment of a recorded workload: before the name or size of a
file changes, or after an append whose last bytes were torn off, zeroed or replaced. The log is
opened as after a crash. Every acknowledged record has to be there in order (the policy forces each
batch to the disk), a batch that is sent again must not be stored twice, and the files must be
consistent.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_files import check_directory
from kprod.broker.log.partition_log import PartitionLog
from kprod.records.record_batch import BatchHeader
from tests.support.crash_images import crash_images
from tests.unit.broker.logs import open_log, produce, values

CONFIG = LogConfig(
    segment_bytes=900, index_interval_bytes=150, segment_index_bytes=400, flush_messages=1
)
APPENDS = 24
DAMAGES = ("cut", "zeros", "noise")


class Point(NamedTuple):
    """A directory as a crash left it, with what was acknowledged and what may be there."""

    directory: Path
    acknowledged: int
    written: int
    what: str


def crash_points(folder: Path, chance: random.Random) -> Iterator[Point]:
    """The points of one workload of random batches, the log's directory and copies of it."""
    data = folder / "data"
    data.mkdir()
    log = open_log(data, config=CONFIG)
    done = 0
    for number in range(APPENDS):
        count = chance.randint(1, 5)
        images = folder / f"images-{number}"
        with crash_images(data, images) as found:
            produce(log, done, count)
        for image in found:
            yield Point(image, done, done + count, f"in append {number}")
        if chance.random() < 0.1:
            log.close()
            log = open_log(data, config=CONFIG)
        after = folder / f"after-{number}"
        shutil.copytree(data, after)
        yield Point(after, done + count, done + count, f"after append {number}")
        for damage in DAMAGES:
            torn = folder / f"torn-{number}-{damage}"
            shutil.copytree(data, torn)
            _tear(log, torn, damage, chance)
            yield Point(torn, done, done + count, f"append {number} torn: {damage}")
        done += count
    log.abandon()


def _tear(log: PartitionLog, directory: Path, damage: str, chance: random.Random) -> None:
    """Damage some of the last batch: a write of which the disk kept only a part."""
    active = log.segments[-1]
    path = directory / active.records.path.name
    *_, (position, header) = active.records.headers()
    content = bytearray(path.read_bytes())
    at = position + chance.randrange(header.size)
    if damage == "cut":
        del content[at:]
    elif damage == "zeros":
        content[at:] = bytes(len(content) - at)
    else:
        content[at:] = chance.randbytes(len(content) - at)
    path.write_bytes(content)


def judge(point: Point) -> None:
    """Open the log as after a crash. ``AssertionError`` says what is wrong with it."""
    config = replace(CONFIG, flush_messages=None)
    log = open_log(point.directory, recovery_point=0, config=config)
    found = [int(value or b"") for value in values(log)]
    assert found[: point.acknowledged] == list(range(point.acknowledged)), (point, found)
    assert found == list(range(len(found))), (point, found)
    assert len(found) <= point.written, (point, found)
    if point.acknowledged:
        # The producer that had no answer sends its last record again, in a batch as it was.
        last = [h for s in log.segments for _, h in s.records.headers()][-1]
        assert isinstance(last, BatchHeader)
        first = last.base_sequence
        again = produce(log, first, last.record_count)
        assert again.base_offset == last.base_offset, (point, again)
        assert log.end_offset == len(found), (point, again)
    if len(found) < point.written:
        produce(log, len(found), point.written - len(found))
    log.close()
    problems = list(check_directory(point.directory))
    assert not problems, (point, problems)


@pytest.mark.full
def test_crashes_lose_and_double_nothing(tmp_path: Path) -> None:
    judged = 0
    for seed in range(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        for point in crash_points(folder, random.Random(seed)):
            judge(point)
            judged += 1
    assert judged > 250
