"""Producer as a drop-in replacement for confluent_kafka.Producer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import error as confluent_errors
from confluent_kafka.admin import AdminClient
from confluent_kafka.serialization import (
    IntegerSerializer,
    SerializationError,
    StringSerializer,
)

from kprod.broker import ApiKey, EmbeddedBroker, Fault
from kprod.broker.network.listener import Listener
from kprod.confluent import (
    KafkaError,
    KafkaException,
    Message,
    Producer,
    SerializingProducer,
    ValueSerializationError,
)
from tests.support.interruption import Interrupted, interruptible
from tests.support.ports import free_port

LONG = 30.0


@pytest.fixture
def producer(servers: str) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": servers}) as made:
        yield made


def new_producer(broker: EmbeddedBroker | None, **options: Any) -> Producer:
    """A producer of this broker, or of an address without a broker."""
    servers = broker.bootstrap_servers if broker else f"127.0.0.1:{free_port()}"
    config = {name.replace("_", "."): value for name, value in options.items()}
    return Producer({"bootstrap.servers": servers, **config})


class Reports:
    def __init__(self) -> None:
        self.received: list[tuple[KafkaError | None, Message]] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.received.append((error, message))

    @property
    def codes(self) -> list[str | None]:
        return [None if error is None else error.name() for error, _ in self.received]

    @property
    def stored(self) -> dict[str, list[bytes]]:
        """The values of stored records, by topic."""
        found: dict[str, list[bytes]] = {}
        for error, message in self.received:
            if error is None:
                found.setdefault(message.topic(), []).append(message.value())
        return found

    @property
    def failed(self) -> list[tuple[str, str]]:
        """Topics of failed records, with the names of their errors."""
        return [(message.topic(), error.name()) for error, message in self.received if error]


def test_a_delivery_report_contains_the_stored_message(producer: Producer) -> None:
    reports = Reports()
    producer.produce("t", "value", key="key", headers={"h": "x"}, on_delivery=reports, timestamp=7)
    assert len(producer) == 1
    assert producer.flush(LONG) == len(producer) == 0
    ((error, message),) = reports.received
    assert error is None
    assert (message.topic(), message.key(), message.value()) == ("t", b"key", b"value")
    assert message.headers() == [("h", b"x")]
    assert message.timestamp() == (1, 7)
    assert message.offset() == 0
    latency = message.latency()
    assert latency is not None
    assert latency > 0


def test_poll_delivers_reports_in_partition_order(servers: str) -> None:
    reports, threads = Reports(), set()

    def report(error: KafkaError | None, message: Message) -> None:
        reports(error, message)
        threads.add(threading.current_thread())

    with Producer({"bootstrap.servers": servers, "on_delivery": report}) as producer:
        for number in range(500):
            producer.produce("t", str(number), partition=1)
        served = 0
        while served < 500:
            served += producer.poll(LONG)
    assert [message.value() for _, message in reports.received] == [b"%d" % n for n in range(500)]
    assert threads == {threading.current_thread()}


class Values(list[bytes]):
    """A callback that collects values."""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.append(message.value())


def test_delivery_callbacks_are_accepted_in_every_position_of_confluent_kafka(servers: str) -> None:
    for name in ("on_delivery", "dr_cb"):
        own, default, of_batch = Values(), Values(), Values()
        with Producer({"bootstrap.servers": servers, name: default}) as producer:
            producer.produce("t", b"1", None, -1, own, None, 1000, [("a", b"b")])
            producer.produce("t", b"2", None, -1, None, own)
            producer.produce("t", b"3")
            producer.produce_batch("t", [{"value": b"4"}], callback=of_batch)
        assert (sorted(own), default, of_batch) == ([b"1", b"2"], [b"3"], [b"4"])


def test_the_queue_is_bounded_and_poll_makes_room(servers: str) -> None:
    with Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 2}) as producer:
        producer.produce("t", b"v")
        producer.produce("t", b"v")
        with pytest.raises(BufferError, match="Queue full"):
            producer.produce("t", b"v")
        producer.flush(LONG)
        producer.produce("t", b"v")


def test_produce_batch_queues_valid_messages_and_sets_the_error_of_others(servers: str) -> None:
    first, rest = Reports(), Reports()
    messages: list[dict[str, Any]] = [
        {"value": b"v", "callback": first, "partition": 1},
        {"value": "text", "key": "k", "headers": {"a": "b"}},
        {"value": bytes(3_000_000)},
    ]
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.list_topics("t", timeout=LONG)
        assert producer.produce_batch("t", messages, on_delivery=rest) == 2
    assert messages[2]["_error"].name() == "MSG_SIZE_TOO_LARGE"
    assert [m.partition() for _, m in first.received] == [1]
    assert [m.value() for _, m in rest.received] == [b"text"]


def test_a_configuration_is_a_dict_of_options_and_callbacks() -> None:
    for conf in (None, "text"):
        with pytest.raises(TypeError, match="expected configuration dict"):
            Producer(conf)
    with pytest.raises(TypeError, match="expected stats_cb property as a callable function"):
        Producer({"stats_cb": 1})


def test_a_producer_whose_init_did_not_run_behaves_as_closed() -> None:
    class Uninitialized(Producer):
        def __init__(self) -> None:
            """Does not call the parent."""

    with pytest.raises(RuntimeError, match="Producer has been closed"):
        Uninitialized().poll(0)
    assert Uninitialized().close()
    assert len(Uninitialized()) == 0


def test_serializers_of_confluent_kafka_work(servers: str) -> None:
    conf = {
        "bootstrap.servers": servers,
        "key.serializer": StringSerializer("utf_8"),
        "value.serializer": IntegerSerializer(),
    }
    reports = Reports()
    with SerializingProducer(conf) as producer:
        producer.produce("t", key="k", value=7, on_delivery=reports)
        with pytest.raises(ValueSerializationError) as caught:
            producer.produce("t", key="k", value="seven")
        assert producer.produce_batch("t", [{"key": b"k", "value": b"raw"}], callback=reports) == 1
    assert {(message.key(), message.value()) for _, message in reports.received} == {
        (b"k", b"\0\0\0\7"),
        (b"k", b"raw"),
    }
    assert isinstance(caught.value, confluent_errors.ValueSerializationError)
    assert isinstance(caught.value, SerializationError)
    assert (caught.value.name, caught.value.exception) == (
        "_VALUE_SERIALIZATION",
        caught.value.__cause__,
    )
    with pytest.raises(RuntimeError):
        producer.produce("t", value=7)


def test_an_interrupted_flush_loses_no_report() -> None:
    reports = Reports()
    port = free_port()
    with Producer({"bootstrap.servers": f"127.0.0.1:{port}", "on_delivery": reports}) as producer:
        producer.produce("t", "before")
        with interruptible():
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Interrupted):
                producer.flush()
        assert len(producer) == 1
        producer.produce("t", "after")
        with EmbeddedBroker(listeners=[Listener(port=port)], topics={"t": 1}):
            assert producer.flush(LONG) == 0
    assert [message.value() for _, message in reports.received] == [b"before", b"after"]
    assert reports.codes == [None, None]


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        ("t", 99, "_UNKNOWN_PARTITION"),
        *((name, -1, "TOPIC_EXCEPTION") for name in ("no such/topic", "x" * 250, "", "..")),
    ],
)
def test_an_unknown_topic_or_partition_is_reported(
    producer: Producer, topic: str, partition: int, code: str
) -> None:
    reports = Reports()
    producer.produce(topic, b"v", partition=partition, on_delivery=reports)
    assert producer.flush(LONG) == len(producer) == 0
    assert reports.failed == [(topic, code)]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"value": 1}, TypeError),
        ({"key": 1.5}, TypeError),
        ({"partition": "1"}, TypeError),
        ({"timestamp": "now"}, TypeError),
        ({"timestamp": -5}, KafkaException),
        ({"value": bytes(3_000_000)}, KafkaException),
        ({"partition": -7}, KafkaException),
        *(({"headers": headers}, TypeError) for headers in (("a", "b"), ["text"], {"a": 3})),
        ({"headers": [("a", "b", "c")]}, TypeError),
    ],
)
def test_an_invalid_record_raises_even_if_the_topic_is_unknown(
    fields: dict[str, Any], error: type[Exception]
) -> None:
    producer = new_producer(None)
    for known in (False, True):  # whether other records wait for the topic
        with pytest.raises(error):
            producer.produce("t", **fields)
        assert len(producer) == known
        producer.produce("t", b"v")
    producer.close(0)


@pytest.mark.parametrize(
    ("messages", "error", "message"),
    [
        ("text", TypeError, "messages must be a list"),
        ([{}, 3], TypeError, "index 1 must be a dict"),
        ([{"value": 3}], TypeError, "Message value at index 0 must be bytes or str"),
        ([{"key": []}], TypeError, "Message key at index 0 must be bytes or str"),
        ([{"partition": "1"}], TypeError, "Message partition at index 0 must be int"),
        ([{"timestamp": 1}], NotImplementedError, "timestamps"),
        ([{"value": b"v"}, {"headers": 3}], ValueError, "Invalid headers at index 1"),
    ],
)
def test_produce_batch_refuses_invalid_messages(
    producer: Producer, messages: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        producer.produce_batch("t", messages)
    assert len(producer) == 0


def test_purge_distinguishes_in_flight_and_queued_records(broker: EmbeddedBroker) -> None:
    reports = Reports()
    with new_producer(None) as unknown:
        unknown.produce("t", b"waits", on_delivery=reports)
        unknown.purge(in_queue=False)
        assert unknown.flush(0) == 1
        unknown.purge(in_flight=False)
        assert unknown.poll(0) == 1
        unknown.produce("t", b"left", on_delivery=reports)
        assert unknown.close(0.01)
    silent = Fault(api=ApiKey.PRODUCE, drop=True, times=None)
    with broker.faults.active(silent), new_producer(broker, max_in_flight=1) as producer:
        producer.list_topics("t", timeout=LONG)
        producer.produce("t", b"sent", on_delivery=reports)
        while not silent.hits:
            producer.poll(0.01)
        producer.produce("t", b"queued", on_delivery=reports)
        producer.purge(in_queue=False)
        assert producer.poll(0) == 1
        producer.purge(in_flight=False)
        assert producer.poll(0) == 1
    assert [message.value() for _, message in reports.received] == [
        *(b"waits", b"left", b"sent", b"queued")
    ]
    assert reports.codes == ["_PURGE_QUEUE", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_PURGE_QUEUE"]


def texts(metadata: Any) -> list[tuple[str, str]]:
    topic = metadata.topics["b"]
    parts = metadata, *metadata.brokers.values(), topic, *topic.partitions.values()
    return [(str(part), repr(part)) for part in parts]


def test_list_topics_and_cluster_id() -> None:
    with (
        EmbeddedBroker(topics={"a": 1, "b": 2}, auto_create_topics=False) as broker,
        new_producer(broker) as producer,
    ):
        metadata = producer.list_topics(timeout=LONG)
        assert {name: len(topic.partitions) for name, topic in metadata.topics.items()} == {
            "a": 1,
            "b": 2,
        }
        assert metadata.controller_id in metadata.brokers
        assert producer.cluster_id(LONG) == metadata.cluster_id
        for partition in metadata.topics["b"].partitions.values():
            assert partition.replicas == partition.isrs == list(metadata.brokers)
        client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert texts(producer.list_topics("b", LONG)) == texts(client.list_topics("b", LONG))
        missing = producer.list_topics("c", timeout=LONG).topics["c"]
        assert repr(missing) == f"TopicMetadata(c, 0 partitions, {missing.error})"
        assert missing.error is not None
        assert missing.error.name() == "UNKNOWN_TOPIC_OR_PART"
    with new_producer(None) as unreachable:
        for call, code in (
            (unreachable.list_topics, KafkaError._TRANSPORT),
            (unreachable.cluster_id, KafkaError._TIMED_OUT),
        ):
            with pytest.raises(KafkaException) as caught:
                call(timeout=0.05)
            assert caught.value.args[0] == code


@pytest.mark.parametrize(
    ("topic", "error"), [("\ud800", KafkaException), ("t" * 40_000, KafkaException), (5, TypeError)]
)
def test_list_topics_refuses_invalid_topic_names(
    producer: Producer, topic: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        producer.list_topics(topic, LONG)
    reports = Reports()
    producer.produce("t", "v", on_delivery=reports)
    assert producer.flush(LONG) == 0
    assert reports.codes == [None]


def test_failures_without_a_callback_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        reports: list[dict[str, Any]] = [{}, {"on_delivery": Reports()}]
        for name, options in zip(("silent", "reported"), reports, strict=True):
            producer = new_producer(broker, client_id=name)
            producer.list_topics("t", LONG)
            with broker.faults.active(Fault(api=ApiKey.PRODUCE, times=None, error=87)):
                producer.produce("t", b"v", **options)
                producer.flush(LONG)
            producer.close()
    lines = [text for text in caplog.messages if "for topic 't' failed" in text]
    assert [text.partition(":")[0] for text in lines] == ["silent"]
