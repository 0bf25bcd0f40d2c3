"""Metrics sent to a StatsD server."""

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
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server_socket:
        server_socket.bind(("127.0.0.1", 0))
        server_socket.settimeout(30)
        yield server_socket


def received_until(server: socket.socket, name: str) -> dict[str, str]:
    """The metrics received up to the datagram with ``name``."""
    received: dict[str, str] = {}
    while name not in received:
        received |= dict(line.rsplit(":", 1) for line in server.recv(65_536).decode().splitlines())
    return received


def test_totals_are_sent_as_increments_and_other_metrics_as_gauges(server: socket.socket) -> None:
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
        first = received_until(server, of_topic)
        assert first[of_topic] == "1|c"
        assert first["app.kprod.producer.one_1.record-send-total"] == "1|c"
        assert first["app.kprod.producer.one_1.buffer-total-bytes"].endswith("|g")
        for _ in range(2):
            producer.send("a.b", b"v").get(30)
        reporter.send()
        second = received_until(server, of_topic)
        assert second[of_topic] == "2|c"
        assert "app.kprod.producer.one_1.record-error-total" not in second
        producer.send("a.b", b"v").get(30)
        reporter.close()  # sends the remaining increments once
        assert received_until(server, of_topic)[of_topic] == "1|c"


def test_a_failing_client_is_logged_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def __init__(self) -> None:
            self.attempts = 0
            self.retried = threading.Event()

        def pipeline(self) -> None:
            self.attempts += 1
            if self.attempts == 3:
                self.retried.set()
            raise OSError("unreachable")

    client = Broken()
    reporter = StatsdReporter(client, interval=0.001)
    assert client.retried.wait(30)
    reporter.close()
    logged = [record for record in caplog.records if "StatsD" in record.getMessage()]
    assert len(logged) == 1


class RecordingClient:
    """A client that keeps the counters of each pipeline, and can fail."""

    def __init__(self) -> None:
        self.fails = False
        self.counters: list[dict[str, int]] = []

    @contextmanager
    def pipeline(self) -> Iterator[RecordingClient]:
        self.counters.append({})
        yield self
        if self.fails:
            raise OSError("unreachable")

    def gauge(self, name: str, value: float) -> None:
        """Ignored."""

    def incr(self, name: str, count: int) -> None:
        self.counters[-1][name] = count


class FakeProducer:
    """A producer with the records of one topic, or without the topic."""

    def __init__(self) -> None:
        self.config = ProducerConfig.from_options({"client_id": "one"})
        self.records: int | None = None

    def metrics(self) -> dict[str, dict[str, float]]:
        if self.records is None:
            return {}
        return {"producer-topic-metrics.t": {"record-send-total": self.records}}


NAME = "kprod.producer-topic.one.t.record-send-total"


def test_increments_that_could_not_be_sent_are_sent_next_time() -> None:
    client, producer = RecordingClient(), FakeProducer()
    with StatsdReporter(client, cast(KafkaProducer, producer), interval=NEVER) as reporter:
        producer.records, client.fails = 3, True
        with pytest.raises(OSError, match="unreachable"):
            reporter.send()
        producer.records, client.fails = 5, False
        reporter.send()
        assert client.counters[-1] == {NAME: 5}


@pytest.mark.parametrize("reported_without_topic", [True, False])
def test_the_counter_of_a_forgotten_topic_restarts(reported_without_topic: bool) -> None:
    client, producer = RecordingClient(), FakeProducer()
    with StatsdReporter(client, cast(KafkaProducer, producer), interval=NEVER) as reporter:
        producer.records = 5
        reporter.send()
        if reported_without_topic:
            producer.records = None
            reporter.send()
        producer.records = 2
        reporter.send()
        assert client.counters[-1] == {NAME: 2}
