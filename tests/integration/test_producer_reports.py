"""Callbacks, waits, error messages, logged failures and the closing of plug-ins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kprod import KafkaProducer, Persisted
from kprod.broker import EmbeddedBroker
from kprod.errors import (
    ConfigError,
    InvalidRecordError,
    KprodTimeoutError,
    RecordTypeError,
    SerializationError,
)
from kprod.wire.versions import ApiKey
from tests.support.programs import run_python
from tests.support.scripted_cluster import ScriptedCluster, silence
from tests.support.scripted_producer import producer_before

ROUNDS = 300


@pytest.fixture
def producer(servers: str) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=servers, linger_ms=0) as made:
        yield made


def test_get_returns_after_the_callbacks_added_before(producer: KafkaProducer) -> None:
    for _ in range(ROUNDS):
        called: list[object] = []
        future = producer.send("t", b"v").add_callback(called.append)
        stored = future.get(30)
        assert called == [stored]


@pytest.mark.parametrize("wait", ["get", "get of many", "flush"])
def test_a_wait_that_times_out_says_that_the_record_may_be_stored(wait: str) -> None:
    """Otherwise an application would send it again."""
    cluster = ScriptedCluster(topics={"t": [1]})
    cluster.add(1)
    with producer_before(cluster) as producer:
        producer.send("t", b"first").get(30)
        cluster.brokers[1].next(ApiKey.PRODUCE, silence)
        many = wait == "get of many"
        sent = producer.send_many("t", [b"v"]) if many else producer.send("t", b"v")
        with pytest.raises(KprodTimeoutError) as raised:
            producer.flush(0.01) if wait == "flush" else sent.get(0.01)
        assert not sent.is_done
        assert raised.value.persisted is Persisted.MAYBE
        producer.close(0)


def test_get_in_a_callback_of_the_same_record_does_not_deadlock(producer: KafkaProducer) -> None:
    results: list[object] = []
    future = producer.send("t", b"v")
    future.add_callback(lambda _: results.append(future.get(30)))
    assert future.get(30) == results[0]


async def a_coroutine(_: object) -> None:
    """It would never be awaited."""


@pytest.mark.parametrize("callback", [None, 3, a_coroutine])
def test_invalid_callbacks_are_refused(producer: KafkaProducer, callback: Any) -> None:
    future = producer.send("t", b"v")
    for add in ("add_callback", "add_errback", "add_both", "add_done_callback"):
        with pytest.raises(RecordTypeError, match="a delivery callback must"):
            getattr(future, add)(callback)


@pytest.mark.parametrize("pending", [True, False])
def test_an_invalid_timeout_of_get_is_refused(producer: KafkaProducer, pending: bool) -> None:
    future = producer.send("t", b"v")
    if not pending:
        future.get(30)
    wrong: Any = "1"
    with pytest.raises(RecordTypeError, match="get: timeout must be seconds or None, got '1'"):
        future.get(wrong)
    with pytest.raises(InvalidRecordError, match="from 0 on, got -1"):
        future.get(-1)


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": -math.inf}])
def test_the_json_serializer_refuses_nan_and_infinity(servers: str, value: object) -> None:
    with (
        KafkaProducer(bootstrap_servers=servers, value_serializer="json") as producer,
        pytest.raises(SerializationError, match="JSON compliant"),
    ):
        producer.send("t", value)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: KafkaProducer("host:9092"), TypeError, "bootstrap_servers='host:9092'"),
        (lambda: KafkaProducer({"acks": 1}), TypeError, r"KafkaProducer\(\*\*options\)"),
        (lambda: KafkaProducer(bootstrap_servers="a;b"), ConfigError, "separate addresses with"),
    ],
)
def test_wrong_constructor_arguments_raise_with_a_hint(
    make: Callable[[], KafkaProducer], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_unobserved_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"linger_ms": 50_000, "request_timeout_ms": 50}
    with EmbeddedBroker(topics={"t": 1}) as broker:
        servers = broker.bootstrap_servers
        unread, watched = (
            KafkaProducer(bootstrap_servers=servers, client_id=name, **options)
            for name in ("unread", "watched")
        )
        for producer in (unread, watched):
            producer.partitions_for("t")
        for _ in range(3):
            unread.send("t", b"v").add_callback(print)  # for successes only
            watched.send("t", b"v").add_errback(lambda _: None)
    for producer in (unread, watched):
        producer.close(0)
    lines = [text.split(" for ")[0] for text in caplog.messages if "records for topic" in text]
    assert lines == ["unread: 3 records"]
    ends = [text.split(":")[0] for text in caplog.messages if "delivered 0 records" in text]
    assert ends == ["unread has ended", "watched has ended"]


PATCHED = """
import sys, types
module = sys.modules[{name!r}] = types.ModuleType({name!r})
module.is_module_patched = module.is_monkey_patched = lambda name: True
import kprod
try:
    kprod.KafkaProducer()
except kprod.errors.IllegalStateError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["gevent.monkey", "eventlet.patcher"])
def test_monkey_patched_threads_are_refused(name: str) -> None:
    printed = run_python("-c", PATCHED.format(name=name)).stdout
    assert printed.startswith(f"{name.partition('.')[0]} has replaced Python's threads")


def test_serializers_partitioners_and_interceptors_are_closed_once_at_the_end(servers: str) -> None:
    calls: list[str] = []

    def recording(call: str, result: object = None) -> Callable[..., object]:
        def record(*_: object) -> object:
            calls.append(call)
            return result

        return record

    plugin: Any = SimpleNamespace(
        serialize=recording("serialize", b""),
        choose=recording("choose", 0),
        appended=recording("appended"),
        on_acknowledgement=recording("acknowledged"),
        on_send_error=recording("failed"),
        close=recording("close"),
    )
    plugins = {"key_serializer": plugin, "value_serializer": plugin, "partitioner": plugin}
    producer = KafkaProducer(
        bootstrap_servers=servers, **plugins, interceptors=[plugin], linger_ms=50
    )
    producer.send("t", b"")
    producer.close()
    producer.close()
    assert calls == ["serialize", "serialize", "choose", "appended", "acknowledged", "close"]


def test_records_of_interceptors_are_not_passed_to_interceptors(broker: EmbeddedBroker) -> None:
    audited: KafkaProducer
    auditing = SimpleNamespace(on_acknowledgement=lambda _: audited.send("audit", b"stored"))
    servers = broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers, interceptors=[auditing]) as audited:
        audited.send("t", b"v").get(30)
        for _ in range(5):
            audited.flush()
    assert len(broker.records("audit")) == 1
