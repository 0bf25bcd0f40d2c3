"""What a StatsD server is told of producers, by datagrams."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import cast

import pytest
from statsd import StatsClient

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker
from kprod.config import ProducerConfig
from kprod.observability.statsd import StatsdReporter

NEVER = 10_000.0


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(30)
        yield made


def told_until(server: socket.socket, name: str) -> dict[str, str]:
    """What it was told until and with the datagram that has ``name``."""
    told: dict[str, str] = {}
    while name not in told:
        told |= dict(line.rsplit(":", 1) for line in server.recv(65_536).decode().splitlines())
    return told


def test_totals_are_told_by_what_was_added_and_the_rest_as_it_is(server: socket.socket) -> None:
    with (
        EmbeddedBroker(topics={"a.b": 1}) as broker,
        KafkaProducer(client_id="one:1", bootstrap_servers=broker.bootstrap_servers) as producer,
        closing(StatsClient(*server.getsockname(), prefix="app")) as client,
        StatsdReporter(client, interval=NEVER) as reporter,
    ):
        reporter.add(producer)
        producer.send("a.b", b"v").get(30)
        reporter.send()
        of_topic = "app.kprod.producer-topic.one_1.a_b.record-send-total"
        first = told_until(server, of_topic)
        assert first[of_topic] == "1|c"
        assert first["app.kprod.producer.one_1.record-send-total"] == "1|c"
        assert first["app.kprod.producer.one_1.buffer-total-bytes"].endswith("|g")
        for _ in range(2):
            producer.send("a.b", b"v").get(30)
        reporter.send()
        second = told_until(server, of_topic)
        assert second[of_topic] == "2|c"
        assert "app.kprod.producer.one_1.record-error-total" not in second
        producer.send("a.b", b"v").get(30)
        reporter.close()  # what happened before the end is told at the end, once
        assert told_until(server, of_topic)[of_topic] == "1|c"


def test_a_client_that_fails_is_logged_once_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def __init__(self) -> None:
            self.tried = 0
            self.often = threading.Event()

        def pipeline(self) -> None:
            self.tried += 1
            if self.tried == 3:
                self.often.set()
            raise OSError("unreachable")

    client = Broken()
    reporter = StatsdReporter(client, interval=0.001)
    assert client.often.wait(30)
    reporter.close()
    told = [record for record in caplog.records if "StatsD" in record.getMessage()]
    assert len(told) == 1


class Told:
    """A client that keeps the counters of each pipeline, and fails as long as it is told to."""

    def __init__(self) -> None:
        self.fails = False
        self.counters: list[dict[str, int]] = []

    @contextmanager
    def pipeline(self) -> Iterator[Told]:
        self.counters.append({})
        yield self
        if self.fails:
            raise OSError("unreachable")

    def gauge(self, name: str, value: float) -> None:
        """It is no counter."""

    def incr(self, name: str, count: int) -> None:
        self.counters[-1][name] = count


class Measured:
    """A producer, as far as it is reported: with the records of one topic, or without the topic."""

    def __init__(self) -> None:
        self.config = ProducerConfig.from_options({"client_id": "one"})
        self.records: int | None = None

    def metrics(self) -> dict[str, dict[str, float]]:
        if self.records is None:
            return {}
        return {"producer-topic-metrics.t": {"record-send-total": self.records}}


NAME = "kprod.producer-topic.one.t.record-send-total"


def test_what_could_not_be_sent_is_told_the_next_time() -> None:
    client, producer = Told(), Measured()
    with StatsdReporter(client, cast(KafkaProducer, producer), interval=NEVER) as reporter:
        producer.records, client.fails = 3, True
        with pytest.raises(OSError, match="unreachable"):
            reporter.send()
        producer.records, client.fails = 5, False
        reporter.send()
        assert client.counters[-1] == {NAME: 5}


@pytest.mark.parametrize("is_seen_missing", [True, False])
def test_a_topic_that_was_forgotten_counts_from_the_beginning(is_seen_missing: bool) -> None:
    client, producer = Told(), Measured()
    with StatsdReporter(client, cast(KafkaProducer, producer), interval=NEVER) as reporter:
        producer.records = 5
        reporter.send()
        if is_seen_missing:
            producer.records = None
            reporter.send()
        producer.records = 2
        reporter.send()
        assert client.counters[-1] == {NAME: 2}
