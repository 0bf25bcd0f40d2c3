"""Records of unknown topics: one thread waits for all topics, and none blocks another."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from enum import StrEnum
from typing import Any

import confluent_kafka
import pytest

from kprod.admin import read_topic
from kprod.broker import ApiKey, Authentication, EmbeddedBroker, Fault
from kprod.broker.network.listener import Listener
from kprod.confluent import KafkaError, KafkaException, Message, Producer
from kprod.transport.tcp import TcpBackend
from kprod.types import ProducerRecord
from tests.integration.confluent.test_producer import LONG, Reports, new_producer
from tests.support.committed_records import committed
from tests.support.programs import run_python

BROKER = {"topics": {"t": 1}, "auto_create_topics": False}


def waiting_threads(client_id: str) -> list[threading.Thread]:
    """Threads of one producer; those of an earlier test may still be ending."""
    named = [thread for thread in threading.enumerate() if thread.name.startswith("kprod-topic")]
    return [thread for thread in named if thread.name.endswith(client_id)]


def test_one_thread_waits_for_all_unknown_topics() -> None:
    reports = Reports()
    with new_producer(None, client_id="gateway") as producer:
        for number in range(200):
            producer.produce(f"device-{number}", b"v", on_delivery=reports)
        (waiting,) = waiting_threads("gateway")
        assert producer.flush(0) == 200
        producer.purge()
        assert producer.flush(LONG) == 0
        waiting.join(LONG)
        assert not waiting.is_alive()
    assert sorted(reports.failed) == sorted((f"device-{n}", "_PURGE_QUEUE") for n in range(200))


def test_records_of_many_new_topics_arrive_in_order() -> None:
    reports, requests = Reports(), Fault(api=ApiKey.METADATA, times=None)  # only counts requests
    with (
        EmbeddedBroker(default_partitions=1) as broker,
        broker.faults.active(requests),
        new_producer(broker) as producer,
    ):
        for reading in range(3):
            for number in range(100):
                producer.produce(f"device-{number}", b"%d" % reading, on_delivery=reports)
        assert producer.flush(LONG) == 0
    assert reports.stored == {f"device-{n}": [b"0", b"1", b"2"] for n in range(100)}
    assert requests.hits < 50


def test_a_missing_topic_does_not_block_other_topics(broker: EmbeddedBroker) -> None:
    reports = Reports()
    with new_producer(broker, message_timeout_ms=60_000) as producer:
        producer.produce("later", b"a", on_delivery=reports)
        producer.produce("t", b"b", on_delivery=reports)
        while not reports.stored:
            producer.poll(0.01)
        assert reports.stored == {"t": [b"b"]}
        broker.create_topic("later", 1)
        assert producer.flush(LONG) == 0
    assert reports.stored == {"t": [b"b"], "later": [b"a"]}


def test_records_that_wait_for_memory_keep_their_order(broker: EmbeddedBroker) -> None:
    reports = Reports()
    values = [b"%04d" % number + bytes(996) for number in range(300)]
    with new_producer(broker, batch_size=16_384, queue_buffering_max_kbytes=640) as producer:
        producer.list_topics("t", LONG)
        for value in values:
            for topic in ("u", "v"):
                producer.produce(topic, value, on_delivery=reports)
        with broker.faults.active(Fault(api=ApiKey.PRODUCE, delay=0.1, times=10)):
            with suppress(BufferError):  # once no memory is left
                while True:
                    producer.produce("t", values[0])
            for topic in ("u", "v"):
                broker.create_topic(topic, 1)
            assert producer.flush(LONG) == 0
    assert reports.stored == {"u": values, "v": values}


def test_records_of_unknown_topics_count_against_the_memory_limit() -> None:
    with new_producer(None, queue_buffering_max_kbytes=4096) as producer:
        for _ in range(2):
            for _ in range(4):
                producer.produce("t", bytes(900_000), bytes(100_000))
            with pytest.raises(BufferError, match="Queue full"):
                producer.produce("other", bytes(900_000))
            assert len(producer) == 4
            producer.purge()
            assert producer.flush(LONG) == 0


def test_a_record_whose_topic_appears_during_close_is_reported() -> None:
    """A race: without the wait in ``close`` one of twenty producers lost a record."""
    topics = [f"device-{number}" for number in range(100)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with EmbeddedBroker(topics=dict.fromkeys(topics, 1)) as broker:
            for _ in range(25):
                reports = Reports()
                producer = new_producer(broker)
                producer.list_topics(timeout=LONG)
                for topic in topics:
                    producer.produce(topic, b"v", on_delivery=reports)
                while not reports.stored:
                    producer.poll(0)
                producer.close(0)
                assert len(reports.stored) + len(reports.failed) == len(topics)
    finally:
        sys.setswitchinterval(interval)


def test_a_key_keeps_its_partition_if_the_topic_appears_during_the_lookup() -> None:
    producers: list[Producer] = []
    reports = Reports()

    class SlowBackend(TcpBackend):
        """Its ``wake`` returns to the caller only after the response has arrived."""

        def wake(self) -> None:
            super().wake()
            while producers and threading.current_thread() is threading.main_thread():
                native = producers[0].__kprod_producer__
                if native is None or native.cluster.topic("t") is not None:
                    break
                time.sleep(0.001)

    with (
        EmbeddedBroker(topics={"t": 8}) as broker,
        new_producer(broker, transport=SlowBackend) as producer,
    ):
        producers.append(producer)
        for _ in range(2):
            producer.produce("t", b"v", b"key", on_delivery=reports)
            assert producer.flush(LONG) == 0
    partitions = [message.partition() for _, message in reports.received]
    assert partitions == 2 * [confluent_kafka.consistent(b"key", 8)]


class Colour(StrEnum):
    RED = "red"


def test_str_subclasses_are_encoded_as_text(broker: EmbeddedBroker) -> None:
    with new_producer(broker) as producer:
        producer.produce("t", Colour.RED, Colour.RED, headers={"h": Colour.RED})
        producer.flush(LONG)
        producer.produce("t", Colour.RED, Colour.RED, headers={"h": Colour.RED})
    stored = [record for _, record in read_topic(broker.bootstrap_servers, "t")]
    fields = [(record.key, record.value, record.headers) for record in stored]
    assert fields == 2 * [(b"red", b"red", (("h", b"red"),))]


def test_a_buffer_is_copied_while_its_topic_is_unknown(broker: EmbeddedBroker) -> None:
    with new_producer(broker) as producer:
        value, key = bytearray(b"first"), bytearray(b"key")
        buffers: list[Any] = [memoryview(value), key]
        producer.produce("t", *buffers)
        value[:], key[:] = b"later", b"yek"
        producer.flush(LONG)
    ((_, record),) = read_topic(broker.bootstrap_servers, "t")
    assert (record.key, record.value) == (b"key", b"first")


@pytest.mark.parametrize("topic", ["t", "later"])
def test_a_forked_child_waits_only_for_its_own_topics(topic: str, broker: EmbeddedBroker) -> None:
    reports = Reports()
    with new_producer(broker) as producer:
        producer.produce("later", b"v", on_delivery=reports)
        child = os.fork()
        if not child:
            os._exit(_produce_in_child(producer, topic))
        broker.create_topic("later", 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert producer.flush(LONG) == 0
    assert reports.stored == {"later": [b"v"]}
    stored = [(name, record.value) for name in ("t", "later") for record in broker.records(name)]
    assert sorted(stored) == sorted([("later", b"v"), (topic, b"w")])


def _produce_in_child(producer: Producer, topic: str) -> int:
    """0 if the record was stored. An alarm ends a hanging child."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(LONG))
    reports = Reports()
    try:
        left = len(producer)
        producer.produce(topic, b"w", on_delivery=reports)
        while not reports.stored and not reports.failed:
            producer.poll(0.01)
        left += producer.flush(LONG)
    except BaseException:
        return 1
    return 0 if (left, reports.stored) == (0, {topic: [b"w"]}) else 2


AT_EXIT = """
import multiprocessing, sys
from kprod.confluent import Producer

def produces(servers):
    producer = Producer({"bootstrap.servers": servers})
    for number in range(50):
        producer.produce("t", str(number))
    return producer

if __name__ == "__main__":
    how, servers = sys.argv[1:]
    if how == "child":
        child = multiprocessing.get_context("fork").Process(target=produces, args=(servers,))
        child.start()
        child.join()
        sys.exit(child.exitcode)
    producer = produces(servers)
    if how == "deleted":
        del producer
"""


@pytest.mark.parametrize("how", ["end", "deleted", "child"])
def test_records_of_an_unknown_topic_are_sent_at_exit(how: str, broker: EmbeddedBroker) -> None:
    assert "lost" not in run_python("-c", AT_EXIT, how, broker.bootstrap_servers).stderr
    assert [record.value for record in broker.records("t")] == [b"%d" % n for n in range(50)]


def test_records_of_a_missing_topic_delay_no_others_at_exit(broker: EmbeddedBroker) -> None:
    """The linger time exceeds the wait at exit: only the end of the engine cuts it short."""
    program = """
import sys
from kprod.confluent import Producer

producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 60_000})
producer.list_topics("t")
producer.produce("t", b"queued")
producer.produce("missing", b"waits")
"""
    ended = run_python("-c", program, broker.bootstrap_servers)
    assert "lost at the interpreter's exit: 1 record of" in ended.stderr
    assert [record.value for record in broker.records("t")] == [b"queued"]


def test_a_record_waits_until_the_credentials_are_corrected() -> None:
    """The password may be corrected at the broker or here. User and password may be numbers."""
    reports = Reports()
    listener = Listener(name="SASL", authentication=Authentication({"7": "right"}))
    with (
        EmbeddedBroker(topics={"t": 1}, listeners=[listener]) as broker,
        new_producer(
            broker,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username=7,
            sasl_password=42,
            reconnect_backoff_max_ms=100,
        ) as producer,
    ):
        producer.produce("t", b"v", on_delivery=reports)
        assert producer.flush(0.5) == 1
        producer.set_sasl_credentials("7", "right")
        assert producer.flush(LONG) == 0
    assert reports.stored == {"t": [b"v"]}


def transactional(broker: EmbeddedBroker, timeout_ms: int, **options: Any) -> Producer:
    producer = new_producer(broker, transactional_id="x", message_timeout_ms=timeout_ms, **options)
    producer.init_transactions(LONG)
    producer.begin_transaction()
    return producer


def refused(call: object, *arguments: object) -> KafkaError:
    assert callable(call)
    with pytest.raises(KafkaException) as caught:
        call(*arguments)
    error: KafkaError = caught.value.args[0]
    return error


@pytest.mark.parametrize("topic", ["no name of a topic", "missing"])
def test_a_failed_record_prevents_the_commit(broker: EmbeddedBroker, topic: str) -> None:
    """As in librdkafka: "1 message(s) failed delivery"; the transaction must be aborted."""
    reported: list[tuple[KafkaError | None, Message]] = []
    with transactional(broker, 1_000) as producer:
        producer.produce("t", b"aborted")
        producer.produce(topic, b"lost", on_delivery=lambda *report: reported.append(report))
        assert refused(producer.commit_transaction, LONG).txn_requires_abort()
        producer.poll(0)
        ((error, _),) = reported
        assert error is not None
        producer.abort_transaction(LONG)
        producer.begin_transaction()
        producer.produce("t", b"committed")
        producer.commit_transaction(LONG)


def test_commit_waits_for_records_of_unknown_topics(broker: EmbeddedBroker) -> None:
    with transactional(broker, 60_000) as producer:
        producer.produce("later", b"v")
        error = refused(producer.commit_transaction, 0.05)
        assert (error.name(), error.retriable()) == ("_TIMED_OUT", True)
        broker.create_topic("later", 1)
        producer.commit_transaction(LONG)
    assert [record.value for record in broker.records("later")] == [b"v"]


class HoldingInterceptor:
    """An interceptor that holds a record until it is released."""

    def __init__(self) -> None:
        self.reached, self.released = threading.Event(), threading.Event()

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.reached.set()
        assert self.released.wait(LONG)
        return record


def test_a_record_being_queued_is_aborted_with_its_transaction(broker: EmbeddedBroker) -> None:
    interceptor = HoldingInterceptor()
    with transactional(broker, 60_000, interceptors=[interceptor]) as producer:
        producer.produce("later", b"aborted")
        broker.create_topic("later", 1)
        assert interceptor.reached.wait(LONG)
        error = refused(producer.abort_transaction, 0.05)
        assert (error.name(), error.retriable()) == ("_TIMED_OUT", True)
        interceptor.released.set()
        producer.abort_transaction(LONG)
        producer.begin_transaction()
        producer.produce("t", b"committed")
        producer.commit_transaction(LONG)
    assert committed(broker.bootstrap_servers, "later", 1) == []
    assert committed(broker.bootstrap_servers, "t", 1) == [b"committed"]


def test_close_aborts_a_record_being_queued_with_its_transaction(broker: EmbeddedBroker) -> None:
    interceptor, reports = HoldingInterceptor(), Reports()
    producer = transactional(broker, 60_000, linger_ms=30_000, interceptors=[interceptor])
    producer.produce("later", b"aborted", on_delivery=reports)
    broker.create_topic("later", 1)
    assert interceptor.reached.wait(LONG)
    closing = threading.Thread(target=producer.close)
    closing.start()
    closing.join(0.2)  # by now it has purged what waits, which the record no longer does
    interceptor.released.set()
    closing.join(LONG)
    assert reports.failed == [("later", "_PURGE_QUEUE")]
    assert committed(broker.bootstrap_servers, "later", 1) == []
