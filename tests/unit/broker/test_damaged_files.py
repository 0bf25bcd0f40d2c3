"""Missing, truncated and corrupt files of a data directory, and lost writes."""

from __future__ import annotations

import random
import shutil
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directories import LogDirectories
from kprod.broker.log.log_files import check_directory
from kprod.broker.log.partition_log import PartitionLog
from kprod.errors import BrokerError
from kprod.records.record_batch import BatchHeader, read_batches
from kprod.types import TopicPartition
from tests.support.crash_images import crash_images
from tests.support.tier import examples
from tests.unit.broker.logs import append, produce, read_log, values

WHERE = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, segment_index_bytes=400)
COUNT = 40
EPOCH_AT = 12
PARTITION_FILES = ["t-0/*.index", "t-0/*.timeindex", "t-0/*.snapshot"]
"""Files that are not repaired after a clean stop."""
RECOVERY_POINT = "recovery-point-offset-checkpoint"
REBUILT = [
    *PARTITION_FILES,
    RECOVERY_POINT,
    "log-start-offset-checkpoint",
    "t-0/leader-epoch-checkpoint",
    ".kafka_cleanshutdown",
]


DAMAGES = 12


def damage(path: Path, number: int) -> None:
    """Damage a file: missing, empty, ones, zeros, noise, truncated, or with a bit flipped."""
    content = path.read_bytes()
    size = len(content)
    chance = random.Random(size * DAMAGES + number)
    flipped = bytearray(content or b"\0")
    flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
    fixed = [b"", b"\xff" * 8, bytes(1000), chance.randbytes(size), content[:-3]]
    cuts = [content[: chance.randrange(size or 1)] for _ in range(2)]
    if number == 0:
        path.unlink()
    else:
        path.write_bytes([*fixed, *cuts, *[bytes(flipped)] * 4][number - 1])


class LogMachine(RuleBasedStateMachine):
    """A partition whose broker stops and crashes, and the batches of an idempotent producer.

    The value of a record is its offset and sequence.
    """

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.root = Path(self.resources.enter_context(tempfile.TemporaryDirectory()))
        self.path = self.root / "data"
        self.batches: list[tuple[int, int]] = []
        self.is_consistent = True
        self.directory = LogDirectories([self.path], CONFIG)
        self.log = self.directory.create(WHERE, uuid.uuid4())
        for _ in range(25):  # over several segments
            self.produced(1)

    @property
    def end(self) -> int:
        return sum(count for _, count in self.batches)

    def produced(self, count: int) -> None:
        assert produce(self.log, self.end, count).base_offset == self.end
        self.batches.append((self.end, count))

    def reopen(self, at_least: int, at_most: int) -> None:
        """Check the number of records, and that no batch is incomplete."""
        self.directory = LogDirectories([self.path], CONFIG)
        self.log = self.directory.logs[WHERE]
        found = len(values(self.log))
        assert values(self.log) == [b"%d" % number for number in range(found)]
        assert at_least <= found <= at_most
        while self.end > found:
            self.batches.pop()
        assert self.end == found

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        for _ in range(4):
            self.produced(count)

    @rule()
    def maintain(self) -> None:
        self.directory.maintain(0)

    @precondition(lambda self: self.batches)
    @rule()
    def send_again(self) -> None:
        """The response to the last batch was lost."""
        first, count = self.batches[-1]
        assert produce(self.log, first, count).base_offset == first
        with pytest.raises(BrokerError, match="OUT_OF_ORDER"):
            produce(self.log, self.end + 1)

    @rule(clean=st.booleans(), name=st.sampled_from(REBUILT), number=st.integers(0, DAMAGES - 1))
    def damage_a_file_beside_the_log(self, clean: bool, name: str, number: int) -> None:
        """The file is rebuilt: no record is lost, and duplicates are recognised."""
        self.directory.close() if clean else self.directory.abandon()
        if name in PARTITION_FILES:
            self.is_consistent &= not clean
            if not clean:
                (self.path / RECOVERY_POINT).unlink(missing_ok=True)
        for file in self.path.glob(name):
            damage(file, number)
        self.reopen(self.end, self.end)
        if self.batches:
            self.send_again()

    @precondition(lambda self: self.end > int(self.active().stem))
    @rule(clean=st.booleans(), lost=st.integers(1, 400), instead=st.sampled_from(["", "0", "?"]))
    def tear_the_newest_bytes(self, clean: bool, lost: int, instead: str) -> None:
        """The disk lost writes despite fsync."""
        self.directory.close() if clean else self.directory.abandon()
        active = self.active()
        content = active.read_bytes()
        kept = max(len(content) - lost, 0)
        rest = len(content) - kept
        filling = {"": b"", "0": bytes(rest), "?": random.Random(lost).randbytes(rest)}[instead]
        active.write_bytes(content[:kept] + filling)
        if clean and instead:  # a clean stop is trusted
            (self.path / ".kafka_cleanshutdown").unlink()
        self.is_consistent &= not clean
        self.reopen(int(active.stem), self.end)

    def active(self) -> Path:
        return max((self.path / "t-0").glob("*.log"))

    @rule(count=st.integers(1, 5), moment=st.floats(0, 1, exclude_max=True))
    def crash_while_a_batch_is_appended(self, count: int, moment: float) -> None:
        before = self.end
        images = Path(tempfile.mkdtemp(dir=self.root))
        with crash_images(self.path, images) as found:
            self.produced(count)
        if found:
            self.directory.abandon()
            self.path = found[int(moment * len(found))]
            self.reopen(before, self.end)

    def teardown(self) -> None:
        """Check that the files are consistent."""
        self.directory.close()
        try:
            assert not self.is_consistent or list(check_directory(self.path / "t-0")) == []
        finally:
            self.resources.close()


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=examples(25), stateful_step_count=12)


def test_an_emptied_segment_can_be_appended_to_after_a_clean_stop() -> None:
    machine = LogMachine()
    machine.append(count=1)
    machine.tear_the_newest_bytes(clean=True, lost=machine.active().stat().st_size, instead="")
    machine.append(count=1)
    machine.teardown()


def checked_bytes(content: bytes) -> list[int]:
    """The positions covered by a CRC: all but the leader epochs."""
    found = []
    at = 0
    while at < len(content):
        size = BatchHeader.parse(content, at).size
        found += [n for n in range(at, at + size) if not EPOCH_AT <= n - at < EPOCH_AT + 4]
        at += size
    return found


def read_between(log: PartitionLog, first: int, end: int) -> list[int]:
    found: list[int] = []
    while first < end:
        batch, *_ = read_batches(read_log(log, first, 1))
        assert batch.crc_ok
        found += [int(record.value or b"") for record in batch.records()]
        first = batch.last_offset + 1
    return found


def test_a_flipped_bit_is_detected_and_does_not_affect_other_segments(tmp_path: Path) -> None:
    chance = random.Random(7)
    whole = tmp_path / "whole"
    directory = LogDirectories([whole], CONFIG)
    log = directory.create(WHERE, uuid.uuid4())
    for number in range(COUNT):
        produce(log, number)
    directory.close()
    for number in range(20):
        path = tmp_path / str(number)
        shutil.copytree(whole, path)
        partition = path / str(WHERE)
        segment = sorted(partition.glob("*.log"))[1]
        content = bytearray(segment.read_bytes())
        content[chance.choice(checked_bytes(bytes(content)))] ^= 1 << chance.randrange(8)
        segment.write_bytes(content)
        assert list(check_directory(partition)), "the damage was not detected"
        directory = LogDirectories([path], CONFIG)
        log = directory.logs[WHERE]
        _, damaged, after, *_ = sorted(int(each.stem) for each in partition.glob("*.log"))
        for first, end in ((0, damaged), (after, COUNT)):
            assert read_between(log, first, end) == list(range(first, end))
        append(log, b"100")
        directory.close()
