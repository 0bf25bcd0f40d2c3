"""Compiled and Python path give the same batches, futures and errors."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kprod import KafkaProducer, RecordMetadata
from kprod.errors import KprodError
from kprod.transport.memory import MemoryBackend
from kprod_ext import RecordClock
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.tier import examples

PARTITIONS = 3
NOON = 1_700_000_000_000
BATCH_SIZE = 300  # a few records, so that batches fill up

ODD_BYTES: list[Any] = [
    *("text", 7, memoryview(b"2222").cast("H"), memoryview(bytes(9)).cast("B", (3, 3))),
    *(memoryview(b"abcdef")[::2], bytearray(2_100)),
]
ODD_HEADERS: list[Any] = [
    *("text", {"in": b"a dict"}, [["a", b"list"]], [("too", b"many", b"things")]),
    *([("name", "text")], [("name", bytearray(b"bytes"))], [(7, b"bytes")]),
    *([("large", bytes(1_990))], [("n" * 1_990, None)]),
]
COUNTED = (
    *("record-send-total", "record-error-total", "batch-total", "byte-total"),
    *("record-size-max", "batch-size-max"),
)


def one_of(things: list[Any]) -> st.SearchStrategy[Any]:
    """Any of them; they need not be hashable."""
    return st.integers(0, len(things) - 1).map(things.__getitem__)


def view(payload: bytes | None) -> Any:
    return None if payload is None else memoryview(b"-" + payload + b"-")[1:-1]


payloads = st.none() | st.binary(max_size=120)
timestamps = (
    st.none()
    | st.integers(min_value=1, max_value=2**40)
    | st.sampled_from([0, 2**62, 2**63 - 1, 2**63, -1, True, 1.5])
)
partitions = st.integers(min_value=0, max_value=PARTITIONS) | st.sampled_from([-1, True, "0"])
names = st.text(max_size=5) | st.sampled_from(["\ud800", "name"])
pairs = st.lists(st.tuples(names, payloads), max_size=12)
pair_dicts = st.builds(lambda name, value: {"key": name, "value": value}, names, payloads)
headers = (
    st.none()
    | pairs
    | pairs.map(tuple)
    | pairs.map(dict)
    | pairs.map(lambda given: dict(given).items())
    | st.lists(st.tuples(names, payloads).map(list) | pair_dicts, max_size=4)
    | one_of(ODD_HEADERS)
)


@dataclass(frozen=True)
class Sending:
    value: Any
    key: Any
    partition: Any
    timestamp_ms: Any
    headers: Any


def sendings(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Sending]]:
    sending = st.builds(
        Sending,
        value=payloads | payloads.map(view) | one_of(ODD_BYTES),
        key=keys,
        partition=st.none() | partitions,
        timestamp_ms=timestamps,
        headers=headers,
    )
    return st.lists(sending, min_size=1, max_size=60)


keys = st.binary(max_size=20) | st.binary(max_size=20).map(bytearray)
"""With several partitions every record has a key, so that partitions are not random."""


class SteadyProducer(KafkaProducer):
    """Its clock advances by a second with every timestamp."""

    step_ms = 1_000

    def _record_clock(self) -> RecordClock:
        moments = count(NOON, self.step_ms)
        return RecordClock(lambda: next(moments))


class Observer:
    """An interceptor that does nothing, but forces the Python path."""

    def on_acknowledgement(self, metadata: RecordMetadata) -> None:
        """Do nothing."""


class OnePath:
    def __init__(
        self, *observers: Observer, partitions: int = PARTITIONS, serializer: Any = None
    ) -> None:
        self.cluster = ScriptedCluster(topics={"t": [1] * partitions})
        broker = self.cluster.add(1)
        self.producer = SteadyProducer(
            bootstrap_servers=f"{broker.host}:{broker.port}",
            transport=lambda: MemoryBackend(self.cluster.listeners),
            interceptors=list(observers),
            value_serializer=serializer,
            batch_size=BATCH_SIZE,
            max_request_size=2_000,
            linger_ms=60_000,
        )

    def run(self, sent: list[Sending]) -> tuple[list[Any], list[Any], dict[str, float]]:
        """The result of every send, the stored batches, and metrics."""
        outcomes = [self._send(sending) for sending in sent]
        self.producer.close(timeout=20)
        results = [o if isinstance(o, str) else o.get(timeout=0) for o in outcomes]
        stored = [
            (tp, [(b.base_sequence, b.crc, list(b.records())) for b in batches])
            for tp, batches in sorted(self.cluster.log.items())
        ]
        counted = self.producer.metrics()["producer-metrics"]
        return results, stored, {name: counted[name] for name in COUNTED}

    def _send(self, s: Sending) -> Any:
        try:
            return self.producer.send("t", s.value, s.key, s.headers, s.partition, s.timestamp_ms)
        except KprodError as error:
            return f"{type(error).__name__}: {error}"


OVERFLOW = [Sending(bytes(80), None, None, None, None)] * 12
"""Most of them open a batch, since the previous one is full."""


@settings(max_examples=examples(40))
@given(
    st.tuples(st.just(PARTITIONS), sendings(keys))
    | st.tuples(st.just(1), sendings(st.none() | keys))
)
@example((1, OVERFLOW))
def test_both_paths_give_the_same_batches_and_results(
    given: tuple[int, list[Sending]],
) -> None:
    partitions, sent = given
    compiled = OnePath(partitions=partitions).run(sent)
    assert compiled == OnePath(Observer(), partitions=partitions).run(sent)


class Serializer:
    """Adds a header to some records, fails for some, and counts its calls."""

    def __init__(self) -> None:
        self.seen = 0

    def serialize(self, topic: str, headers: list[Any], data: Any) -> Any:
        self.seen += 1
        if data in ("text", 7):
            raise ValueError("not this one")
        if isinstance(data, bytes) and len(data) % 3 == 1:
            headers.append(("length", b"%d" % len(data)))
        return data


@settings(max_examples=examples(20))
@given(sendings(keys))
def test_serializers_are_called_once_per_record_on_both_paths(sent: list[Sending]) -> None:
    compiled, python = Serializer(), Serializer()
    found = OnePath(serializer=compiled).run(sent)
    assert found == OnePath(Observer(), serializer=python).run(sent)
    assert compiled.seen == python.seen


@pytest.mark.parametrize("serializer", [None, Serializer()])
def test_the_compiled_path_is_taken(serializer: Any) -> None:
    path = OnePath(serializer=serializer)
    sent = [Sending(b"%d" % n, b"key", None, 1, None) for n in range(3)]
    for sending in sent:
        path._send(sending)
    assert path.producer._topic_appenders.partition_counts() == {"t": PARTITIONS}
    assert len(path.run([])[1][0][1][0][2]) == len(sent)
