"""Whichever lane a record took: the same batches, the same futures, the same errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kprod import KafkaProducer, RecordMetadata
from kprod.errors import KprodError
from kprod.transport.memory import MemoryBackend
from tests.support.scripted_cluster import ScriptedCluster

PARTITIONS = 3
BATCH_SIZE = 300  # a few records, so that batches fill, close and are opened again

payloads = st.none() | st.binary(max_size=120)
timestamps = st.integers(min_value=1, max_value=2**40) | st.sampled_from([0, 2**62, -1, True, 1.5])
partitions = st.integers(min_value=0, max_value=PARTITIONS - 1) | st.sampled_from([-1, True, "0"])
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), payloads), max_size=3)


@dataclass(frozen=True)
class Sending:
    """The arguments of one send; a key or a partition is always there, chance has no part in it."""

    value: bytes | None
    key: bytes | None
    partition: Any
    timestamp_ms: Any
    headers: Any


sendings = st.builds(
    Sending,
    value=payloads,
    key=st.binary(max_size=20),
    partition=st.none() | partitions,
    timestamp_ms=timestamps,
    headers=headers,
)


class Observer:
    """Does nothing; that it must see every record keeps a producer on the Python lane."""

    def on_acknowledgement(self, metadata: RecordMetadata) -> None:
        """Nothing to note."""


class Lane:
    """A producer and a cluster of its own."""

    def __init__(self, *observers: Observer) -> None:
        self.cluster = ScriptedCluster(topics={"t": [1] * PARTITIONS})
        broker = self.cluster.add(1)
        self.producer = KafkaProducer(
            bootstrap_servers=f"{broker.host}:{broker.port}",
            transport=lambda: MemoryBackend(self.cluster.listeners),
            interceptors=list(observers),
            batch_size=BATCH_SIZE,
            max_request_size=2_000,
            linger_ms=60_000,
        )

    def run(self, sent: list[Sending]) -> tuple[list[Any], list[Any]]:
        """The outcome of every send, and what the cluster stored."""
        outcomes = [self._send(sending) for sending in sent]
        self.producer.close(timeout=20)
        told = [o if isinstance(o, str) else o.get(timeout=0) for o in outcomes]
        stored = [
            (tp, [(b.base_sequence, b.crc, list(b.records())) for b in batches])
            for tp, batches in sorted(self.cluster.log.items())
        ]
        return told, stored

    def _send(self, s: Sending) -> Any:
        try:
            return self.producer.send("t", s.value, s.key, s.headers, s.partition, s.timestamp_ms)
        except KprodError as error:
            return f"{type(error).__name__}: {error}"


@settings(max_examples=40, deadline=None)
@given(st.lists(sendings, min_size=1, max_size=60))
def test_both_lanes_make_the_same_batches_and_tell_the_same(sent: list[Sending]) -> None:
    assert Lane().run(sent) == Lane(Observer()).run(sent)


def test_the_fast_lane_is_taken() -> None:
    lane = Lane()
    sent = [Sending(b"%d" % n, b"key", None, 1, None) for n in range(3)]
    for sending in sent:
        lane._send(sending)
    assert lane.producer._lane_table.partition_counts() == {"t": PARTITIONS}
    assert len(lane.run([])[1][0][1][0][2]) == len(sent)
