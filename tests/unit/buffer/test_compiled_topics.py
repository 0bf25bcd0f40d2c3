"""When records take the compiled path, and when the Python path."""

from __future__ import annotations

from collections.abc import Callable

from kprod.buffer.accumulator import RecordAccumulator
from kprod.buffer.compiled_topics import CompiledTopics
from kprod.cluster.metadata import Metadata
from kprod.types import TopicPartition
from kprod_ext import CompiledSend, FutureRecordMetadata, StickyPartition, TopicAppender
from tests.support.scripted_producer import cluster_of
from tests.support.sender_rig import SenderRig, rig_of

TP = TopicPartition("t", 0)
PYTHON_PATH = "Python path"


class Sending(CompiledSend):
    """A ``send`` whose Python path returns ``PYTHON_PATH``."""

    def __init__(self, accumulator: RecordAccumulator, metadata: Metadata) -> None:
        self.topics = CompiledTopics(self._topic_appenders, accumulator, metadata, largest=1_000)

    def _send(self, *_arguments: object) -> str:
        return PYTHON_PATH


def open_appender(partitions: int, batch_size: int = 200) -> tuple[SenderRig, Sending]:
    """A topic whose partitions take the compiled path."""
    rig = rig_of(cluster_of(partitions), linger_ms=1_000, batch_size=batch_size)
    send = Sending(rig.sender.accumulator, rig.sender.metadata)
    for number in range(partitions):
        rig.queue(b"first", partition=number)
        send.topics.admit(TopicPartition("t", number), partitions, None)
    return rig, send


def test_records_move_to_the_next_sticky_partition_after_its_share() -> None:
    _, send = open_appender(2, batch_size=1_000)
    last = StickyPartition(0, 40)
    first = StickyPartition(0, 40, StickyPartition(1, 40, last))
    send.topics.admit(TP, 2, first)
    went = []
    while isinstance(future := send.send("t", b"twenty bytes of value"), FutureRecordMetadata):
        went.append(future.topic_partition.partition)
    assert went == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert last.spent


def lose_leaders(rig: SenderRig, *lost: int) -> None:
    """Update the metadata: these partitions of the topic have no leader."""
    nodes = [-1 if number in lost else 1 for number in range(len(rig.cluster.topics["t"]))]
    rig.cluster.topics["t"] = nodes
    led = [number for number, node in enumerate(nodes) if node != -1]
    rig.sender.metadata.request_update()
    assert rig.run(lambda: list(rig.sender.metadata.snapshot.topics["t"].available) == led)


def test_after_a_leader_loss_only_records_without_a_key_take_the_python_path() -> None:
    rig, send = open_appender(2, batch_size=2_000)
    send.topics.admit(TopicPartition("t", 1), 2, StickyPartition(1, 500, StickyPartition(0, 50)))
    assert isinstance(send.send("t", b"no key"), FutureRecordMetadata)
    lose_leaders(rig, 0)
    assert send.send("t", b"no key") == PYTHON_PATH
    waits = send.send("t", b"explicit", partition=0)
    assert isinstance(waits, FutureRecordMetadata)
    lose_leaders(rig)
    rig.sender.accumulator.flushes.add(None)
    assert rig.run(waits.succeeded)


def test_sticky_partitions_drawn_before_a_leader_loss_are_not_used() -> None:
    """By a send that was running when the snapshot arrived."""
    rig, send = open_appender(3, batch_size=2_000)
    lose_leaders(rig, 1)
    send.topics.admit(TP, 3, StickyPartition(0, 50, StickyPartition(1, 50)))
    assert send.send("t", b"v") == PYTHON_PATH
    send.topics.admit(TP, 3, StickyPartition(0, 50, StickyPartition(2, 50)))
    assert isinstance(send.send("t", b"v"), FutureRecordMetadata)


def test_after_close_records_take_the_python_path() -> None:
    rig, send = open_appender(1)
    rig.sender.accumulator.close()
    assert send.send("t", b"late", partition=0) == PYTHON_PATH
    send.topics.close()
    send.topics.admit(TP, 1, None)  # a send that was running during close()
    assert send._topic_appenders.partition_counts() == {}


def test_another_number_of_partitions_closes_the_appender() -> None:
    rig, send = open_appender(1)
    rig.cluster.topics["t"] = [1, 1]
    rig.sender.metadata.request_update()
    assert rig.run(lambda: len(rig.sender.metadata.snapshot.topics["t"]) == 2)
    assert send.send("t", b"v", key=b"k") == PYTHON_PATH
    send.topics.admit(TP, 1, None)  # with the former number of partitions
    assert send._topic_appenders.partition_counts() == {}


def test_a_closed_appender_is_not_cached() -> None:
    """The appender of the last record is cached while it is in the table."""
    _, send = open_appender(1, batch_size=2_000)
    table, appender = send._topic_appenders, send._topic_appenders.get("t")
    assert appender is not None
    closed = TopicAppender(1, 1_000)
    removals: list[Callable[[], None]] = [
        lambda: table.close("t"),
        table.clear,
        lambda: table.open("t", closed),
    ]
    for remove in removals:
        table.open("t", appender)
        assert isinstance(send.send("t", b"v", partition=0), FutureRecordMetadata)
        assert isinstance(send.send("t", b"v", partition=0), FutureRecordMetadata)
        remove()
        assert send.send("t", b"v", partition=0) == PYTHON_PATH
        assert send.send("".join(["", "t"]), b"v", partition=0) == PYTHON_PATH


def test_a_sticky_partition_that_no_longer_exists_takes_the_python_path() -> None:
    """The topic was recreated with fewer partitions."""
    _, send = open_appender(1)
    appender = send._topic_appenders.get("t")
    assert appender is not None
    appender.stick(StickyPartition(100_000_000, 100))
    assert send.send("t", b"no key") == PYTHON_PATH
    assert isinstance(send.send("t", b"explicit", partition=0), FutureRecordMetadata)
