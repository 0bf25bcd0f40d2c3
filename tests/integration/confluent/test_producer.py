"""A program written for confluent-kafka, with one line changed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import error as theirs
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


def before(broker: EmbeddedBroker | None, **options: Any) -> Producer:
    """A producer of this broker, or one whose broker is not there."""
    servers = broker.bootstrap_servers if broker else f"127.0.0.1:{free_port()}"
    named = {name.replace("_", "."): value for name, value in options.items()}
    return Producer({"bootstrap.servers": servers, **named})


class Reports:
    def __init__(self) -> None:
        self.heard: list[tuple[KafkaError | None, Message]] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.heard.append((error, message))

    @property
    def codes(self) -> list[str | None]:
        return [None if error is None else error.name() for error, _ in self.heard]

    @property
    def stored(self) -> dict[str, list[bytes]]:
        """The values of records that were stored, by topic."""
        found: dict[str, list[bytes]] = {}
        for error, message in self.heard:
            if error is None:
                found.setdefault(message.topic(), []).append(message.value())
        return found

    @property
    def failed(self) -> list[tuple[str, str]]:
        """Topics of records that were not, with the names of their errors."""
        return [(message.topic(), error.name()) for error, message in self.heard if error]


def test_a_record_is_reported_with_what_became_of_it(producer: Producer) -> None:
    reports = Reports()
    producer.produce("t", "value", key="key", headers={"h": "x"}, on_delivery=reports, timestamp=7)
    assert len(producer) == 1
    assert producer.flush(LONG) == len(producer) == 0
    ((error, message),) = reports.heard
    assert error is None
    assert (message.topic(), message.key(), message.value()) == ("t", b"key", b"value")
    assert message.headers() == [("h", b"x")]
    assert message.timestamp() == (1, 7)
    assert message.offset() == 0
    latency = message.latency()
    assert latency is not None
    assert latency > 0


def test_reports_come_in_poll_in_the_order_of_a_partition(servers: str) -> None:
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
    assert [message.value() for _, message in reports.heard] == [b"%d" % n for n in range(500)]
    assert threads == {threading.current_thread()}


class Told(list[bytes]):
    """A callback that is false as long as it was not called."""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.append(message.value())


def test_callbacks_are_found_where_confluent_kafka_has_them(servers: str) -> None:
    for of_producer in ("on_delivery", "dr_cb"):
        told, other, of_batch = Told(), Told(), Told()
        with Producer({"bootstrap.servers": servers, of_producer: other}) as producer:
            producer.produce("t", b"1", None, -1, told, None, 1000, [("a", b"b")])
            producer.produce("t", b"2", None, -1, None, told)
            producer.produce("t", b"3")
            producer.produce_batch("t", [{"value": b"4"}], callback=of_batch)
        assert (sorted(told), other, of_batch) == ([b"1", b"2"], [b"3"], [b"4"])


def test_the_queue_is_bounded_and_poll_makes_room(servers: str) -> None:
    with Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 2}) as producer:
        producer.produce("t", b"v")
        producer.produce("t", b"v")
        with pytest.raises(BufferError, match="Queue full"):
            producer.produce("t", b"v")
        producer.flush(LONG)
        producer.produce("t", b"v")


def test_batches_of_messages_are_queued_and_those_that_are_not_marked(servers: str) -> None:
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
    assert [m.partition() for _, m in first.heard] == [1]
    assert [m.value() for _, m in rest.heard] == [b"text"]


def test_a_configuration_is_a_dict_of_options_and_callbacks() -> None:
    for conf in (None, "text"):
        with pytest.raises(TypeError, match="expected configuration dict"):
            Producer(conf)
    with pytest.raises(TypeError, match="expected stats_cb property as a callable function"):
        Producer({"stats_cb": 1})


def test_a_producer_that_was_never_made_is_closed() -> None:
    class Half(Producer):
        def __init__(self) -> None:
            """Forgets its parent."""

    with pytest.raises(RuntimeError, match="Producer has been closed"):
        Half().poll(0)
    assert Half().close()
    assert len(Half()) == 0


def test_serializers_of_confluents_package_are_called_with_their_context(servers: str) -> None:
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
    assert {(message.key(), message.value()) for _, message in reports.heard} == {
        (b"k", b"\0\0\0\7"),
        (b"k", b"raw"),
    }
    assert isinstance(caught.value, theirs.ValueSerializationError)
    assert isinstance(caught.value, SerializationError)
    assert (caught.value.name, caught.value.exception) == (
        "_VALUE_SERIALIZATION",
        caught.value.__cause__,
    )
    with pytest.raises(RuntimeError):
        producer.produce("t", value=7)


def test_a_flush_that_is_interrupted_leaves_everything_for_the_next() -> None:
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
    assert [message.value() for _, message in reports.heard] == [b"before", b"after"]
    assert reports.codes == [None, None]


def test_close_waits_for_its_timeout_once(broker: EmbeddedBroker) -> None:
    """The answer comes after it, and before twice as long."""
    reports = Reports()
    producer = before(broker)
    producer.list_topics("t", LONG)
    with broker.faults.active(Fault(api=ApiKey.PRODUCE, delay=3.2)):
        producer.produce("t", "value", on_delivery=reports)
        assert producer.close(2)
    assert reports.codes == ["_PURGE_INFLIGHT"]


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        ("t", 99, "_UNKNOWN_PARTITION"),
        *((name, -1, "TOPIC_EXCEPTION") for name in ("no such/topic", "x" * 250, "", "..")),
    ],
)
def test_a_place_that_is_not_there_is_reported(
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
def test_what_is_no_record_raises_while_the_topic_is_unknown_too(
    fields: dict[str, Any], error: type[Exception]
) -> None:
    producer = before(None)
    for known in (False, True):  # whether others wait for the topic
        with pytest.raises(error):
            producer.produce("t", **fields)
        assert len(producer) == known
        producer.produce("t", b"v")
    producer.close(0)


@pytest.mark.parametrize(
    ("messages", "error", "said"),
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
def test_a_batch_that_is_none_is_refused(
    producer: Producer, messages: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        producer.produce_batch("t", messages)
    assert len(producer) == 0


def test_what_is_on_its_way_is_purged_apart_from_what_is_queued(broker: EmbeddedBroker) -> None:
    reports = Reports()
    with before(None) as unknown:
        unknown.produce("t", b"waits", on_delivery=reports)
        unknown.purge(in_queue=False)
        assert unknown.flush(0) == 1
        unknown.purge(in_flight=False)
        assert unknown.poll(0) == 1
        unknown.produce("t", b"left", on_delivery=reports)
        assert unknown.close(0.01)
    silent = Fault(api=ApiKey.PRODUCE, drop=True, times=None)
    with broker.faults.active(silent), before(broker, max_in_flight=1) as producer:
        producer.list_topics("t", timeout=LONG)
        producer.produce("t", b"sent", on_delivery=reports)
        while not silent.hits:
            producer.poll(0.01)
        producer.produce("t", b"queued", on_delivery=reports)
        producer.purge(in_queue=False)
        assert producer.poll(0) == 1
        producer.purge(in_flight=False)
        assert producer.poll(0) == 1
    assert [message.value() for _, message in reports.heard] == [
        *(b"waits", b"left", b"sent", b"queued")
    ]
    assert reports.codes == ["_PURGE_QUEUE", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_PURGE_QUEUE"]


def shown(metadata: Any) -> list[tuple[str, str]]:
    topic = metadata.topics["b"]
    parts = metadata, *metadata.brokers.values(), topic, *topic.partitions.values()
    return [(str(part), repr(part)) for part in parts]


def test_the_cluster_and_its_topics_are_told() -> None:
    with (
        EmbeddedBroker(topics={"a": 1, "b": 2}, auto_create_topics=False) as broker,
        before(broker) as producer,
    ):
        told = producer.list_topics(timeout=LONG)
        assert {name: len(topic.partitions) for name, topic in told.topics.items()} == {
            "a": 1,
            "b": 2,
        }
        assert told.controller_id in told.brokers
        assert producer.cluster_id(LONG) == told.cluster_id
        for partition in told.topics["b"].partitions.values():
            assert partition.replicas == partition.isrs == list(told.brokers)
        client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert shown(producer.list_topics("b", LONG)) == shown(client.list_topics("b", LONG))
        missing = producer.list_topics("c", timeout=LONG).topics["c"]
        assert repr(missing) == f"TopicMetadata(c, 0 partitions, {missing.error})"
        assert missing.error is not None
        assert missing.error.name() == "UNKNOWN_TOPIC_OR_PART"
    with before(None) as nobody:
        for call, code in (
            (nobody.list_topics, KafkaError._TRANSPORT),
            (nobody.cluster_id, KafkaError._TIMED_OUT),
        ):
            with pytest.raises(KafkaException) as caught:
                call(timeout=0.05)
            assert caught.value.args[0] == code


@pytest.mark.parametrize(
    ("topic", "error"), [("\ud800", KafkaException), ("t" * 40_000, KafkaException), (5, TypeError)]
)
def test_a_topic_that_no_request_can_name_is_not_asked_about(
    producer: Producer, topic: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        producer.list_topics(topic, LONG)
    reports = Reports()
    producer.produce("t", "v", on_delivery=reports)
    assert producer.flush(LONG) == 0
    assert reports.codes == [None]


def test_failures_that_nobody_is_told_of_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        reports: list[dict[str, Any]] = [{}, {"on_delivery": Reports()}]
        for name, options in zip(("silent", "heard"), reports, strict=True):
            producer = before(broker, client_id=name)
            producer.list_topics("t", LONG)
            with broker.faults.active(Fault(api=ApiKey.PRODUCE, times=None, error=87)):
                producer.produce("t", b"v", **options)
                producer.flush(LONG)
            producer.close()
    lines = [text for text in caplog.messages if "for topic 't' failed" in text]
    assert [text.partition(":")[0] for text in lines] == ["silent"]
