"""KafkaProducer as a drop-in replacement for kafka.KafkaProducer, against a broker."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from kprod import Persisted
from kprod.broker import ApiKey, EmbeddedBroker, Fault
from kprod.kafka import KafkaProducer, TopicPartition, errors
from kprod.kafka.metric_names import MetricName
from kprod.kafka.partitioner import Partitioner
from kprod.kafka.serializer import JsonSerializer
from tests.support.committed_records import group_offset

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # raised by its import
    from kafka import errors as kafka_errors
    from kafka.structs import OffsetAndMetadata


@pytest.fixture
def producer(servers: str) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=servers) as made:
        yield made


def test_futures_and_metadata_are_as_in_kafka_python(producer: KafkaProducer) -> None:
    future = producer.send("t", b"value", b"key", [("h", b"1")], 1, 1234)
    stored = future.get(timeout=30)
    assert stored.topic_partition == TopicPartition("t", 1)
    assert (stored.timestamp, stored.serialized_key_size, stored.checksum) == (1234, 3, None)
    assert future.is_done
    assert future.succeeded()
    assert future.value == stored
    assert future.exception is None


def test_callbacks_get_their_arguments_and_late_ones_run_at_once(producer: KafkaProducer) -> None:
    calls: list[Any] = []
    future = producer.send("t", b"value")
    future.add_callback(lambda *args, **kwargs: calls.append((args, kwargs)), 1, named=2)
    future.add_errback(calls.append)
    stored = future.get(30)
    producer.flush()
    assert calls == [((1, stored), {"named": 2})]
    future.add_both(calls.append)
    assert calls[1:] == [stored]


def test_send_refuses_the_arguments_that_kafka_python_refuses(producer: KafkaProducer) -> None:
    with pytest.raises(ValueError, match="Need at least one"):
        producer.send("t")
    bad_headers: list[Any] = [{"h": b""}, [("h", None)], [["h", b""]]]
    for headers in bad_headers:
        with pytest.raises(TypeError):
            producer.send("t", b"v", headers=headers)
    with pytest.raises(ValueError, match="no partition 99"):
        producer.send("t", b"v", partition=99)
    with pytest.raises(kafka_errors.MessageSizeTooLargeError):
        producer.send("t", bytes(2_000_000))
    with pytest.raises(ValueError, match="topic"):
        producer.send("a b", b"v")
    assert producer.send("t", b"v", partition=True).get(30).partition == 1


def fail(*_: object) -> int:
    raise LookupError("from the application")


class Undecided(Partitioner):
    def partition(self, *_: object) -> Any:
        return None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value_serializer": fail}, "from the application"),
        ({"partitioner": fail}, "from the application"),
        ({"partitioner": Undecided()}, "did not assign a partition for topic t"),
    ],
    ids=["failing serializer", "failing partitioner", "no partition"],
)
def test_errors_of_serializers_and_partitioners_propagate(
    servers: str, options: dict[str, Any], message: str
) -> None:
    with (
        KafkaProducer(bootstrap_servers=servers, **options) as producer,
        pytest.raises((LookupError, ValueError), match=message),
    ):
        producer.send("t", b"v", b"k")


@pytest.mark.parametrize("name", ["value_serializer", "value.serializer"])
def test_serializers_and_partitioners_of_the_application_are_used_and_closed(
    servers: str, name: str
) -> None:
    closed = []

    class Json(JsonSerializer):
        def close(self) -> None:
            closed.append(True)

    with KafkaProducer(
        bootstrap_servers=servers,
        key_serializer=str.encode,
        partitioner=lambda key, every, available: every[-1],
        **{name: Json()},
    ) as producer:
        stored = producer.send("t", {"a": 1}, "key").get(30)
        assert (stored.partition, stored.serialized_value_size) == (2, len('{"a": 1}'))
    assert closed == [True]


def test_config_contains_the_effective_values(servers: str) -> None:
    with KafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        assert producer.config["acks"] == -1
        assert producer.config["enable_idempotence"] is True
        assert producer.config["linger_ms"] == KafkaProducer.DEFAULT_CONFIG["linger_ms"] == 0
        assert producer.config["client_id"]
        version = producer.config["api_version"]
        assert version >= (2, 1)
        assert producer.max_usable_produce_magic(version) == 2
    assert KafkaProducer.max_usable_produce_magic((0, 10, 1)) == 1
    assert KafkaProducer.max_usable_produce_magic((0, 9)) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acks": 1}, "acks=1"),
        ({"retries": 0}, "retries=0"),
        ({"max_in_flight_requests_per_connection": 10}, "requests_per_connection=10"),
        ({"api_version": (0, 10)}, "api_version"),
    ],
)
def test_impossible_idempotence_is_refused_if_explicit_and_else_disabled(
    unreachable: str, options: dict[str, Any], message: str
) -> None:
    options = {"bootstrap_servers": unreachable, "api_version": (0, 11), **options}
    with pytest.raises(kafka_errors.KafkaConfigurationError, match=message):
        KafkaProducer(enable_idempotence=True, **options)
    with KafkaProducer(**options) as producer:
        assert producer.config["enable_idempotence"] is False


def test_transactions_are_refused_for_an_old_api_version(unreachable: str) -> None:
    with pytest.raises(kafka_errors.KafkaConfigurationError, match=r"api_version=\(0, 10\)"):
        KafkaProducer(bootstrap_servers=unreachable, api_version=(0, 10), transactional_id="t")


@pytest.mark.parametrize("option", ["bootstrap_timeout_ms", "api_version_auto_timeout_ms"])
def test_the_constructor_raises_if_no_broker_answers(unreachable: str, option: str) -> None:
    options: dict[str, Any] = {"bootstrap_servers": unreachable, option: 50}
    with pytest.raises(kafka_errors.KafkaTimeoutError, match=r"within 0\.05 s") as caught:
        KafkaProducer(**options)
    assert isinstance(caught.value, errors.NoBrokersAvailable)


def test_the_constructor_does_not_wait_if_api_version_is_given(unreachable: str) -> None:
    producer = KafkaProducer(bootstrap_servers=unreachable, api_version="2.0.0", max_block_ms=50)
    assert producer.config["api_version"] == (2, 0, 0)
    with pytest.raises(kafka_errors.KafkaTimeoutError):
        producer.send("t", b"v")
    producer.close()


def test_close_and_get_time_out_while_records_are_pending(broker: EmbeddedBroker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    with broker.faults.active(Fault(api=ApiKey.PRODUCE, delay=0.5)):
        future = producer.send("t", b"v")
        with pytest.raises(
            kafka_errors.KafkaTimeoutError, match="Timeout after waiting for 0 secs"
        ) as late:
            future.get(0)
        assert late.value.persisted is Persisted.MAYBE
        with pytest.raises(kafka_errors.KafkaTimeoutError):
            producer.close(0)
        producer.close()
    assert future.succeeded()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"error": 10}, kafka_errors.MessageSizeTooLargeError),
        ({"drop": True}, kafka_errors.KafkaTimeoutError),
        ({"error": 7}, kafka_errors.KafkaTimeoutError),
    ],
)
def test_the_future_of_a_failed_record_raises_the_class_of_kafka_python(
    broker: EmbeddedBroker, answer: dict[str, Any], error: type[Exception]
) -> None:
    options = {"request_timeout_ms": 200, "delivery_timeout_ms": 300}
    reported: list[Any] = []
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options) as producer:
        producer.partitions_for("t")
        with broker.faults.active(Fault(api=ApiKey.PRODUCE, times=None, **answer)):
            future = producer.send("t", b"v").add_errback(reported.append)
            with pytest.raises(error):
                future.get(30)
        producer.flush()
    assert [type(error) for error in reported] == [type(future.exception)]


def test_calls_in_a_callback_do_not_wait(servers: str) -> None:
    calls: list[object] = []
    done = threading.Event()

    class Closable(JsonSerializer):
        def close(self) -> None:
            calls.append("serializer closed")

    producer = KafkaProducer(bootstrap_servers=servers, value_serializer=Closable())

    def flush_and_close(_: object) -> None:
        try:
            producer.flush()
        except kafka_errors.KafkaTimeoutError:
            calls.append("refused")
        producer.close()
        done.set()

    producer.send("t", 7).add_callback(flush_and_close)
    assert done.wait(30)
    assert calls == ["refused", "serializer closed"]


def test_an_invalid_timeout_raises_a_type_error(producer: KafkaProducer) -> None:
    future = producer.send("t", b"v")
    with pytest.raises(TypeError):
        future.get(timeout="30")  # type: ignore[arg-type]
    assert future.get(timeout=30)


def test_a_future_that_is_already_failed_calls_its_callbacks(producer: KafkaProducer) -> None:
    kind = type(producer.send("t", b"v"))
    refused = kind(None, errors.InvalidTopicError("no"))
    calls: list[object] = []
    refused.add_errback(calls.append).add_callback(calls.append)
    with pytest.raises(kafka_errors.InvalidTopicError) as caught:
        refused.get()
    assert calls == [caught.value]
    assert (refused.is_done, refused.retriable(), refused.value) == (True, False, None)


def test_a_closed_producer_still_knows_its_partitions(servers: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    assert producer.partitions_for("t") == {0, 1, 2}
    assert producer.bootstrap_connected()
    producer.close()
    producer.close()
    assert producer.partitions_for("t") == {0, 1, 2}
    assert not producer.bootstrap_connected()
    assert producer.metrics() == {}
    with pytest.raises(kafka_errors.IllegalStateError, match="already closed"):
        producer.send("t", b"v")


def test_metrics_have_their_groups_and_names(producer: KafkaProducer) -> None:
    producer.send("t", b"v").get(30)
    metrics = producer.metrics()
    assert metrics is not None
    assert metrics["producer-metrics"]["record-send-total"] >= 1
    assert metrics["producer-metrics"]["network-io-rate"] > 0
    assert metrics["kafka-metrics-count"]["count"] == sum(map(len, metrics.values()))
    raw = producer.metrics(raw=True)
    assert raw is not None
    name = next(name for name in raw if name.name == "record-send-total")
    assert isinstance(name, MetricName)
    assert raw[name].value() >= 1


def test_init_transactions_may_be_called_again_in_a_transaction(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers, transactional_id="x") as producer:
        for _ in range(2):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v")
            producer.init_transactions()
            offsets = {TopicPartition("t", 0): OffsetAndMetadata(7, "metadata", 33)}
            producer.send_offsets_to_transaction(offsets, "g")
            producer.commit_transaction()
    assert len(broker.records("t", committed=True)) == 2
    assert group_offset(servers, "g", "t", 0) == 7
    with pytest.raises(errors.IllegalStateError):
        producer.init_transactions()  # closed
    with (
        KafkaProducer(bootstrap_servers=servers) as other,
        pytest.raises(errors.IllegalStateError, match=r"init_transactions\(\) needs"),
    ):
        other.init_transactions()
