"""Small programs as they are written for kafka-python, with it and with its face: the same outcome.

Each does what programs in public use kafka-python for, in words of our own, and runs where all is
well or where something is not. What it noticed is compared, not how long it took.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kprod import kafka as face
from kprod.broker import EmbeddedBroker
from kprod.broker.faults import Fault
from kprod.broker.network.listener import Authentication, Listener
from kprod.broker.protocol.api_key import ApiKey
from tests.support.ports import free_port

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, when it is imported
    import kafka
    from kafka import errors

pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets kafka-python leaves open
]

Noticed = list[object]
SOON: dict[str, Any] = {
    "request_timeout_ms": 2000,
    "delivery_timeout_ms": 2100,
    "max_block_ms": 2000,
    "bootstrap_timeout_ms": 2000,
    "retry_backoff_ms": 20,
}
LONG = 30
NAMES = ("MessageSizeTooLargeError", "KafkaTimeoutError", "BrokerResponseError", "KafkaError")


def caught(error: BaseException) -> Noticed:
    """By which of kafka-python's names a program would have caught it."""
    return [name for name in NAMES if isinstance(error, getattr(errors, name))]


class Program:
    """What a program may use: a way to make producers, and the broker, which it may stop."""

    def __init__(self, make: Callable[..., Any], broker: EmbeddedBroker, **options: Any) -> None:
        self._make = make
        self.broker = broker
        self._options = {"bootstrap_servers": broker.bootstrap_servers, **options}

    def producer(self, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # kafka-python's, about options and serializers
            return self._make(**{**self._options, **options})


def wait_for_each(program: Program) -> Noticed:
    """A script that publishes JSON and waits for each record."""
    producer = program.producer(value_serializer=lambda value: json.dumps(value).encode())
    stored = [producer.send("t", {"n": n}, key=b"k").get(timeout=LONG) for n in range(3)]
    producer.close()
    return [(at.topic, at.offset - stored[0].offset, at.serialized_value_size) for at in stored]


def count_in_callbacks(program: Program) -> Noticed:
    """A pipeline that counts what was stored and what was not, with an argument of its own."""
    noticed: Noticed = []
    with program.producer() as producer:
        for number in range(5):
            future = producer.send("t", b"%d" % number)
            future.add_callback(lambda word, at: noticed.append((word, at.topic)), "stored")
            future.add_errback(lambda error: noticed.append(caught(error)))
        producer.flush(timeout=LONG)
    return noticed


def refuse_what_is_too_large(program: Program) -> Noticed:
    """An exporter that skips rows which are too large, and goes on."""
    noticed: Noticed = []
    with program.producer(max_request_size=1000) as producer:
        for size in (10, 5000, 20):
            try:
                noticed.append(producer.send("t", bytes(size)).get(timeout=LONG).topic)
            except errors.KafkaError as error:
                noticed.append(caught(error))
    return noticed


def refused_by_the_broker(program: Program) -> Noticed:
    """The same, when it is the broker that refuses."""
    program.broker.faults.add(Fault(api=ApiKey.PRODUCE, error=10))
    with program.producer() as producer:
        try:
            return [producer.send("t", b"v").get(timeout=LONG).topic]
        except errors.KafkaError as error:
            return [caught(error), getattr(error, "errno", None)]


def check_health(program: Program) -> Noticed:
    """A service that asks for a broker by making a producer."""
    try:
        program.producer(bootstrap_servers=f"127.0.0.1:{free_port()}", **SOON).close()
    except errors.KafkaError as error:
        return caught(error)
    return ["healthy"]


def miss_a_topic(program: Program) -> Noticed:
    """A worker whose topic nobody has made."""
    with program.producer(allow_auto_create_topics=False, **SOON) as producer:
        try:
            producer.send("nobody-made-it", b"v").get(timeout=LONG)
        except errors.KafkaError as error:
            return caught(error)
    return ["stored"]


def lose_the_broker(program: Program) -> Noticed:
    """A writer whose broker is gone after the first record."""
    producer = program.producer(**SOON)
    noticed: Noticed = [producer.send("t", b"v").get(timeout=LONG).topic]
    program.broker.stop()
    try:
        noticed.append(producer.send("t", b"v").get(timeout=LONG).topic)
    except errors.KafkaError as error:
        noticed.append(caught(error))
    producer.close(timeout=LONG)
    return noticed


def wait_for_a_stalled_broker(program: Program) -> Noticed:
    """A request handler that gives each record half a second, of a broker that says nothing."""
    program.broker.faults.add(Fault(api=ApiKey.PRODUCE, drop=True, times=None))
    producer = program.producer(**SOON)
    future = producer.send("t", b"v")
    noticed: Noticed = []
    try:
        future.get(timeout=0.2)
    except errors.KafkaError as error:
        noticed += [caught(error), future.is_done]
    try:
        future.get(timeout=LONG)
    except errors.KafkaError as error:
        noticed += [caught(error), future.failed()]
    producer.close(timeout=LONG)
    return noticed


def log_to_kafka(program: Program) -> Noticed:
    """A logging handler: whatever happens, ``logger.warning`` must not raise."""
    producer = program.producer(**SOON)
    noticed: Noticed = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                future = producer.send("t", record.getMessage().encode())
                future.add_errback(lambda error: noticed.append(caught(error)))
            except errors.KafkaError as error:
                noticed.append(caught(error))

    logger, handler = logging.getLogger("of a program"), Handler()
    logger.propagate = False
    logger.addHandler(handler)
    logger.warning("before")
    producer.flush(timeout=LONG)
    program.broker.stop()
    logger.warning("after")
    producer.close(timeout=LONG)
    logger.warning("closed")
    logger.removeHandler(handler)
    return noticed


def log_in_wrongly(program: Program) -> Noticed:
    """A job with the password of yesterday."""
    options: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "user",
        "sasl_plain_password": "yesterday's",
    }
    try:
        producer = program.producer(**options, **SOON)
        producer.send("t", b"v").get(timeout=LONG)
    except errors.KafkaError as error:
        return ["KafkaError" in caught(error)]
    return ["stored"]


PROGRAMS = (
    wait_for_each,
    count_in_callbacks,
    refuse_what_is_too_large,
    refused_by_the_broker,
    check_health,
    miss_a_topic,
    lose_the_broker,
    wait_for_a_stalled_broker,
    log_to_kafka,
    log_in_wrongly,
)


@pytest.fixture
def listener(request: pytest.FixtureRequest) -> Listener:
    guarded = request.getfixturevalue("program") is log_in_wrongly
    login = Authentication({"user": "today's"}, ("PLAIN",)) if guarded else None
    return Listener(name="SASL" if guarded else "PLAINTEXT", authentication=login)


@pytest.fixture
def broker(listener: Listener) -> Iterator[EmbeddedBroker]:
    made = EmbeddedBroker(listeners=[listener], topics={"t": 1}, auto_create_topics=False)
    with made as broker:
        yield broker


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program.__name__))
def test_a_program_notices_the_same_with_the_original_and_with_the_face(
    program: Callable[[Program], Noticed], broker: EmbeddedBroker
) -> None:
    original = program(Program(kafka.KafkaProducer, broker))
    broker.faults.clear()
    if not broker.running:
        broker.start()
    ours = program(Program(face.KafkaProducer, broker))
    assert ours == original
    assert original
