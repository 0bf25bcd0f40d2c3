"""Nothing is lost in silence, mistakes are answered in words, and what is plugged in is closed."""

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


def test_callbacks_that_were_added_before_have_run_when_get_returns(
    producer: KafkaProducer,
) -> None:
    for _ in range(ROUNDS):
        heard: list[object] = []
        future = producer.send("t", b"v").add_callback(heard.append)
        stored = future.get(30)
        assert heard == [stored]


@pytest.mark.parametrize("waits", ["get", "get of many", "flush"])
def test_a_wait_that_ends_first_does_not_say_that_nothing_is_stored(waits: str) -> None:
    """The application that sends again what is certainly not stored must not take it for that."""
    cluster = ScriptedCluster(topics={"t": [1]})
    cluster.add(1)
    with producer_before(cluster) as producer:
        producer.send("t", b"first").get(30)
        cluster.brokers[1].next(ApiKey.PRODUCE, silence)
        many = waits == "get of many"
        sent = producer.send_many("t", [b"v"]) if many else producer.send("t", b"v")
        with pytest.raises(KprodTimeoutError) as raised:
            producer.flush(0.01) if waits == "flush" else sent.get(0.01)
        assert not sent.is_done
        assert raised.value.persisted is Persisted.MAYBE
        producer.close(0)


def test_get_in_a_callback_of_the_same_record_does_not_wait_for_it(producer: KafkaProducer) -> None:
    heard: list[object] = []
    future = producer.send("t", b"v")
    future.add_callback(lambda _: heard.append(future.get(30)))
    assert future.get(30) == heard[0]


async def a_coroutine(_: object) -> None:
    """Nobody would await it."""


@pytest.mark.parametrize("callback", [None, 3, a_coroutine])
def test_what_cannot_be_called_back_is_refused(producer: KafkaProducer, callback: Any) -> None:
    future = producer.send("t", b"v")
    for add in ("add_callback", "add_errback", "add_both", "add_done_callback"):
        with pytest.raises(RecordTypeError, match="a delivery callback must"):
            getattr(future, add)(callback)


@pytest.mark.parametrize("pending", [True, False])
def test_a_time_to_wait_is_checked(producer: KafkaProducer, pending: bool) -> None:
    future = producer.send("t", b"v")
    if not pending:
        future.get(30)
    wrong: Any = "1"
    with pytest.raises(RecordTypeError, match="get: timeout must be seconds or None, got '1'"):
        future.get(wrong)
    with pytest.raises(InvalidRecordError, match="from 0 on, got -1"):
        future.get(-1)


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": -math.inf}])
def test_json_has_no_words_for_nan(servers: str, value: object) -> None:
    with (
        KafkaProducer(bootstrap_servers=servers, value_serializer="json") as producer,
        pytest.raises(SerializationError, match="JSON compliant"),
    ):
        producer.send("t", value)


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (lambda: KafkaProducer("host:9092"), TypeError, "bootstrap_servers='host:9092'"),
        (lambda: KafkaProducer({"acks": 1}), TypeError, r"KafkaProducer\(\*\*options\)"),
        (lambda: KafkaProducer(bootstrap_servers="a;b"), ConfigError, "separate addresses with"),
    ],
)
def test_a_producer_made_in_a_wrong_way_says_what_was_meant(
    make: Callable[[], KafkaProducer], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        make()


def test_records_that_fail_while_nobody_looks_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
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
            unread.send("t", b"v").add_callback(print)  # of success only
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
def test_green_threads_are_refused_at_once(name: str) -> None:
    said = run_python("-c", PATCHED.format(name=name)).stdout
    assert said.startswith(f"{name.partition('.')[0]} has replaced Python's threads")


def test_what_is_plugged_in_is_closed_once_and_last(servers: str) -> None:
    calls: list[str] = []

    def noting(call: str, result: object = None) -> Callable[..., object]:
        def note(*_: object) -> object:
            calls.append(call)
            return result

        return note

    plug: Any = SimpleNamespace(
        serialize=noting("serialize", b""),
        choose=noting("choose", 0),
        appended=noting("appended"),
        on_acknowledgement=noting("acknowledged"),
        on_send_error=noting("failed"),
        close=noting("close"),
    )
    plugs = {"key_serializer": plug, "value_serializer": plug, "partitioner": plug}
    producer = KafkaProducer(bootstrap_servers=servers, **plugs, interceptors=[plug], linger_ms=50)
    producer.send("t", b"")
    producer.close()
    producer.close()
    assert calls == ["serialize", "serialize", "choose", "appended", "acknowledged", "close"]


def test_records_of_a_hook_are_told_to_no_hook(broker: EmbeddedBroker) -> None:
    audited: KafkaProducer
    auditing = SimpleNamespace(on_acknowledgement=lambda _: audited.send("audit", b"stored"))
    servers = broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers, interceptors=[auditing]) as audited:
        audited.send("t", b"v").get(30)
        for _ in range(5):
            audited.flush()
    assert len(broker.records("audit")) == 1
