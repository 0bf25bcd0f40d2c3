"""Reading a topic with our own reader: from where it is told to, and to the true end."""

from __future__ import annotations

import pytest

from kprod import KafkaProducer
from kprod.broker.log_reader import end_offsets, read_topic
from tests.support.brokers import StartBroker, embedded, tansu

TOPIC = "read"


def send(producer: KafkaProducer, *numbers: int) -> None:
    """In one batch per partition, two partitions in turn."""
    for number in numbers:
        producer.send(TOPIC, b"%d" % number, partition=number % 2)
    assert producer.flush(timeout=20).failed == 0


@pytest.mark.interop
@pytest.mark.parametrize("start", [embedded, tansu])
def test_the_end_is_behind_the_last_batch(start: StartBroker) -> None:
    """Tansu says of a topic's end where its last batch begins."""
    with (
        start({TOPIC: 2}) as bootstrap,
        KafkaProducer(bootstrap_servers=bootstrap, linger_ms=50) as producer,
    ):
        assert end_offsets(bootstrap, TOPIC) == {0: 0, 1: 0}
        send(producer, *range(10))
        send(producer, *range(10, 20))
        assert end_offsets(bootstrap, TOPIC) == {0: 10, 1: 10}
        assert len(list(read_topic(bootstrap, TOPIC))) == 20


def test_reading_begins_where_it_is_told_to() -> None:
    with (
        embedded({TOPIC: 2}) as bootstrap,
        KafkaProducer(bootstrap_servers=bootstrap, linger_ms=50) as producer,
    ):
        send(producer, *range(6))
        before = end_offsets(bootstrap, TOPIC)
        send(producer, *range(6, 10))
        values = [record.value for _, record in read_topic(bootstrap, TOPIC, since=before)]
        assert values == [b"6", b"8", b"7", b"9"]
        of_the_second = list(read_topic(bootstrap, TOPIC, since={0: 5, 1: 4}))
        assert [(number, record.value) for number, record in of_the_second] == [(1, b"9")]
        middle_of_a_batch = list(read_topic(bootstrap, TOPIC, since={0: 1, 1: 99}))
        assert [record.value for _, record in middle_of_a_batch] == [b"2", b"4", b"6", b"8"]
