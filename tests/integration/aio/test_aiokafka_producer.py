"""AIOKafkaProducer as a drop-in replacement: behaviour and exceptions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Any

import aiokafka
import aiokafka.errors as aiokafka_errors
import pytest
from aiokafka import structs

from kprod import errors as native
from kprod.aio import AIOKafkaProducer, errors
from kprod.broker import ApiKey, Authentication, EmbeddedBroker, Fault, make_listener
from kprod.config import ProducerConfig
from kprod.errors import (
    BrokerError,
    ErrorCode,
    InvalidRecordError,
    KprodError,
    PartitionError,
    RecordTypeError,
)
from kprod.kafka.partitioner import Partitioner
from kprod.types import NextStep
from tests.integration.aio.conftest import Make
from tests.support.ports import free_port

BROKER = {"topics": {"t": 2}}

LONG = 30.0


async def test_records_are_sent_and_closed_producers_refuse_as_in_aiokafka(shared: Make) -> None:
    producer = shared()
    await producer.start()
    future = await producer.send("t", b"v", key=b"k", partition=1, timestamp_ms=5)
    assert isinstance(future, asyncio.Future)
    done, _ = await asyncio.wait([future])
    stored = done.pop().result()
    assert stored is not None
    assert (stored.partition, stored.timestamp) == (1, 5)
    again = await producer.send_and_wait("t", b"v", headers=[("h", b"x")])
    assert again is not None
    futures = [await producer.send("t", b"v") for _ in range(500)]
    assert len(await asyncio.gather(*futures)) == 500
    await producer.flush()
    assert await producer.partitions_for("t") == {0, 1}
    await producer.stop()
    await producer.stop()
    with pytest.raises(aiokafka_errors.ProducerClosed):
        await producer.send("t", b"v")
    with pytest.raises(aiokafka_errors.ProducerClosed):
        await producer.start()


async def test_record_metadata_has_aiokafkas_fields(broker: EmbeddedBroker, make: Make) -> None:
    broker.create_topic("created", 1)
    broker.create_topic("appended", 1, {"message.timestamp.type": "LogAppendTime"})
    async with make() as producer:
        metadata = await producer.send_and_wait("created", b"v", timestamp_ms=5)
        assert metadata is not None
        assert metadata._fields == structs.RecordMetadata._fields
        assert (metadata.timestamp, metadata.timestamp_type) == (5, 0)
        assert metadata.topic_partition == structs.TopicPartition("created", 0)
        later = await (await producer.send("appended", b"v", timestamp_ms=5))
        assert later is not None
        assert later.timestamp > 5
        assert later.timestamp_type == 1


async def test_acks_0_has_no_record_metadata(shared: Make) -> None:
    async with shared(acks=0) as producer:
        assert await producer.send_and_wait("t", b"v") is None
        assert await (await producer.send("t", b"v")) is None


async def test_the_placeholder_default_of_acks_in_aiokafka_is_accepted(shared: Make) -> None:
    """FastStream passes it explicitly."""
    default = inspect.signature(aiokafka.AIOKafkaProducer).parameters["acks"].default

    async with shared(acks=default) as producer:
        assert await producer.send_and_wait("t", b"v") is not None


async def test_serializers_and_partitioner_of_the_application_are_used(shared: Make) -> None:
    class Last(Partitioner):
        def partition(self, *args: Any) -> int:
            return int(max(args[5].partitions_for_topic(args[0])))

    async with shared(
        key_serializer=str.encode,
        value_serializer=lambda value: repr(value).encode(),
        partitioner=Last(),
    ) as producer:
        stored = await producer.send_and_wait("t", 12, key="k")
        assert stored is not None
        assert stored.partition == 1


async def test_errors_are_caught_as_aiokafkas_classes(shared: Make) -> None:
    async with shared() as producer:
        with pytest.raises(aiokafka_errors.MessageSizeTooLargeError):
            await producer.send("t", bytes(3_000_000))
        with pytest.raises(TypeError, match="key or value"):
            await producer.send("t")
        with pytest.raises(ValueError, match="no partition 9"):
            await producer.send("t", b"v", partition=9)
        with pytest.raises(aiokafka_errors.IllegalStateError):  # no transactional_id
            await producer.begin_transaction()


@pytest.mark.parametrize("names", ["127.0.0.1", "127.0.0.1 127.0.0.1", "unknown.invalid 127.0.0.1"])
@pytest.mark.parametrize("kind", [AIOKafkaProducer, aiokafka.AIOKafkaProducer])
async def test_start_fails_once_no_address_can_be_reached(names: str, kind: Any) -> None:
    """As in aiokafka: immediately, without waiting for a time limit."""
    servers = [f"{name}:{free_port()}" for name in names.split()]
    producer = kind(bootstrap_servers=servers, request_timeout_ms=600_000)
    for _ in range(2):
        with pytest.raises(aiokafka_errors.KafkaConnectionError, match="Unable to bootstrap from"):
            await asyncio.wait_for(producer.start(), LONG)
    await producer.stop()


@pytest.mark.parametrize("options", [{}, {"transactional_id": "x"}])
async def test_start_can_be_repeated_until_a_broker_is_available(
    broker: EmbeddedBroker, make: Make, options: dict[str, Any]
) -> None:
    """Programs that wait for Kafka do this."""
    producer = make(request_timeout_ms=300, **options)
    broker.stop()
    for _ in range(2):
        with pytest.raises(aiokafka_errors.KafkaConnectionError, match="no broker could be asked"):
            await producer.start()
    broker.start()
    while True:
        with suppress(aiokafka_errors.KafkaConnectionError):
            await producer.start()
            break
    await producer.start()  # idempotent
    async with producer.transaction() if options else nullcontext():
        assert await producer.send_and_wait("t", b"v")
    await producer.stop()


async def test_a_cancelled_start_can_be_repeated(broker: EmbeddedBroker, make: Make) -> None:
    fault = broker.faults.add(Fault(api=ApiKey.INIT_PRODUCER_ID, delay=0.2))
    producer = make(transactional_id="x")
    started = asyncio.ensure_future(producer.start())
    while not fault.hits:
        await asyncio.sleep(0.001)
    started.cancel()
    await asyncio.wait([started])
    await producer.start()
    async with producer.transaction():
        assert await producer.send_and_wait("t", b"v")
    await producer.stop()


async def test_a_failed_start_of_the_context_manager_closes_the_producer() -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=f"127.0.0.1:{free_port()}", request_timeout_ms=100
    )
    with pytest.raises(aiokafka_errors.KafkaConnectionError):
        async with producer:
            pass
    with pytest.raises(aiokafka_errors.ProducerClosed):
        await producer.start()


async def test_a_missing_topic_is_looked_up_for_request_timeout_ms() -> None:
    with EmbeddedBroker(topics={"t": 1}, auto_create_topics=False) as broker:
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=200
        ) as producer:
            with pytest.raises(aiokafka_errors.UnknownTopicOrPartitionError, match="missing"):
                await asyncio.wait_for(producer.send_and_wait("missing", b"v"), LONG)
            with pytest.raises(aiokafka_errors.UnknownTopicOrPartitionError, match="missing"):
                await asyncio.wait_for(producer.partitions_for("missing"), LONG)
            stored = await producer.send_and_wait("t", b"v")
            assert stored is not None
            assert stored.offset == 0


@pytest.mark.parametrize("kind", [AIOKafkaProducer, aiokafka.AIOKafkaProducer])
async def test_an_exception_in_a_transaction_propagates_if_the_transaction_cannot_be_aborted(
    broker: EmbeddedBroker, kind: Any
) -> None:
    async def fail() -> None:
        async with producer.transaction():
            with pytest.raises(aiokafka_errors.TransactionalIdAuthorizationFailed):
                await producer.send_and_wait("t", b"v")
            raise ZeroDivisionError

    async with kind(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as producer:
        broker.faults.add(Fault(api=ApiKey.PRODUCE, error=53))
        with pytest.raises(ZeroDivisionError):
            await fail()


async def test_a_transaction_commits_after_one_whose_commit_was_refused(
    broker: EmbeddedBroker, make: Make
) -> None:
    async with make(transactional_id="x") as producer:
        broker.faults.add(Fault(api=ApiKey.PRODUCE, error=29))
        with pytest.raises(
            aiokafka_errors.TopicAuthorizationFailedError, match="can only be aborted"
        ):
            async with producer.transaction():
                await producer.send("t", b"1")
        async with producer.transaction():
            await producer.send("t", b"2")
    assert [r.value for r in broker.records("t", committed=True)] == [b"2"]


async def test_transactional_calls_at_the_wrong_time_are_illegal_operations(shared: Make) -> None:
    async with shared() as producer:
        for call in (producer.begin_transaction, producer.commit_transaction):
            with pytest.raises(aiokafka_errors.IllegalOperation):
                await call()
    async with shared(transactional_id="x") as producer:
        with pytest.raises(aiokafka_errors.IllegalOperation):
            await producer.send("t", b"v")
        with pytest.raises(aiokafka_errors.IllegalOperation):
            await producer.send_offsets_to_transaction({}, "")
        async with producer.transaction():
            with pytest.raises(ValueError, match="not a consumer group"):
                await producer.send_offsets_to_transaction({}, "")


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
async def test_send_is_refused_while_a_transaction_ends(shared: Make, end: str) -> None:
    async with shared(transactional_id="x") as producer:
        await producer.begin_transaction()
        await producer.send("t", b"v")
        ending = asyncio.create_task(getattr(producer, end)())
        await asyncio.sleep(0)
        for send in (producer.send, producer.send_and_wait):
            with pytest.raises(aiokafka_errors.IllegalOperation):
                await send("t", b"v")
        await ending


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acks": 122}, "Invalid ACKS parameter"),
        ({"compression_type": "x"}, "Invalid compression type"),
        ({"acks": 1, "enable_idempotence": True}, "not supported if enable_idempotence"),
        ({"security_protocol": "SOME"}, "should be SSL or PLAINTEXT"),
        ({"security_protocol": "SSL", "ssl_context": None}, "`ssl_context` is mandatory"),
        ({"lingr_ms": 1}, "did you mean 'linger_ms'"),
        ({"linger_ms": 1, "linger.ms": 2}, "set twice"),
        ({"request_timeout_ms": "x"}, "request_timeout_ms"),
    ],
)
async def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AIOKafkaProducer(**options)


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"enable.idempotence": True}, "enable_idempotence", True),
        ({"enable.idempotence": True}, "acks", -1),
        ({"request.timeout.ms": "5000"}, "request_timeout_ms", 5000),
        ({"request.timeout.ms": "5000"}, "delivery_timeout_ms", 10_000),
        ({"message.timeout.ms": 7000, "request_timeout_ms": 5000}, "delivery_timeout_ms", 7000),
        ({"profile": "durable"}, "acks", -1),
        ({"profile": "durable"}, "enable_idempotence", True),
        ({"profile": "durable", "request_timeout_ms": 9000}, "delivery_timeout_ms", 1_800_000),
        ({"profile": "durable", "acks": 1}, "enable_idempotence", False),
        ({"profile": "latency"}, "acks", 1),
    ],
)
async def test_options_may_be_spelled_with_dots_and_a_profile_replaces_defaults(
    options: dict[str, Any], name: str, value: object
) -> None:
    producer = AIOKafkaProducer(**options)
    assert getattr(configuration(producer), name) == value
    await producer.stop()


def configuration(producer: AIOKafkaProducer) -> ProducerConfig:
    native = producer.__kprod_producer__
    assert native is not None
    return native.config


LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "secret",
}


@pytest.mark.parametrize(
    "options", [LOGIN, {"connections_max_idle_ms": None}, {"max_batch_size": 64 << 20}]
)
async def test_options_that_aiokafka_documents_are_accepted(options: dict[str, Any]) -> None:
    await AIOKafkaProducer(**options).stop()
    await aiokafka.AIOKafkaProducer(**options).stop()


async def test_the_default_sasl_mechanism_is_plain() -> None:
    login = Authentication({"alice": "secret"}, ("PLAIN",))
    listener = make_listener("SASL", authentication=login)
    with EmbeddedBroker(listeners=[listener], topics={"t": 1}) as broker:
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, **LOGIN
        ) as producer:
            assert await producer.send_and_wait("t", b"v")


async def test_serializers_can_be_given_by_name(shared: Make) -> None:
    async with shared(key_serializer="str", value_serializer="json") as producer:
        stored = await producer.send_and_wait("t", {"a": 1}, key="k")
        assert stored is not None
        batch = producer.create_batch()
        batch.append(key="k", value=[1], timestamp=None)
        assert await (await producer.send_batch(batch, "t", partition=0))
    async with shared(value_serializer="bytes") as producer:
        assert await producer.send_and_wait("t", b"v")
    with pytest.raises(TypeError, match="a serializer is a callable"):
        shared(value_serializer="xml")


async def test_the_future_of_a_failed_record_raises(broker: EmbeddedBroker, make: Make) -> None:
    producer = make(linger_ms=100, request_timeout_ms=1000, delivery_timeout_ms=1200)
    await producer.partitions_for("t")
    future, cancelled = await producer.send("t", b"v"), await producer.send("t", b"v")
    cancelled.cancel()
    broker.stop()
    with pytest.raises(aiokafka_errors.KafkaTimeoutError):
        await future
    await producer.stop()


async def test_a_producer_that_is_not_stopped_warns(shared: Make) -> None:
    producers = [shared()]
    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer"):
        producers.clear()
    with pytest.warns(DeprecationWarning, match="`loop`"):
        other = shared(loop=asyncio.get_running_loop())
    await other.stop()


STALE_EPOCH, FENCED = 47, 90
MINE = {"transactional_id": "mine"}


@pytest.mark.parametrize(
    ("api", "code", "options", "error"),
    [
        (ApiKey.FIND_COORDINATOR, 53, MINE, aiokafka_errors.TransactionalIdAuthorizationFailed),
        (ApiKey.INIT_PRODUCER_ID, 53, MINE, aiokafka_errors.TransactionalIdAuthorizationFailed),
        (
            ApiKey.INIT_PRODUCER_ID,
            31,
            {"enable_idempotence": True},
            aiokafka_errors.ClusterAuthorizationFailedError,
        ),
    ],
)
async def test_every_start_raises_while_authorization_is_missing(
    broker: EmbeddedBroker,
    make: Make,
    api: ApiKey,
    code: int,
    options: dict[str, Any],
    error: type[aiokafka_errors.KafkaError],
) -> None:
    broker.faults.add(Fault(api=api, error=code, times=None))
    producer = make(**options)
    message = "of 'mine'" if options is MINE else "producer id"
    for _ in range(2):
        with pytest.raises(error, match=message) as caught:
            await producer.start()
        assert options is not MINE or caught.value.next_step is NextStep.CLOSE
    await producer.stop()


@pytest.mark.parametrize("api", [ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT])
async def test_a_denied_group_fails_the_transaction_until_it_is_aborted(
    broker: EmbeddedBroker, make: Make, api: ApiKey
) -> None:
    broker.set_transaction_version(1)
    broker.faults.add(Fault(api=api, error=30))
    async with make(**MINE) as producer:
        await producer.begin_transaction()
        with pytest.raises(aiokafka_errors.GroupAuthorizationFailedError, match="only be aborted"):
            await producer.send_offsets_to_transaction({("t", 0): 3}, "g")
        with pytest.raises(aiokafka_errors.GroupAuthorizationFailedError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait("t", b"v")


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ({"error": 5}, aiokafka_errors.LeaderNotAvailableError, r"t-\d"),
        ({"error": 6}, aiokafka_errors.NotLeaderForPartitionError, r"t-\d"),
        ({"error": 7}, aiokafka_errors.RequestTimedOutError, r"t-\d"),
        ({"drop": True}, aiokafka_errors.KafkaTimeoutError, r"delivery_timeout_ms \(1000 ms\)"),
    ],
)
async def test_the_error_of_an_expired_record_is_the_last_error_of_the_broker(
    broker: EmbeddedBroker,
    make: Make,
    answer: dict[str, Any],
    error: type[aiokafka_errors.KafkaError],
    message: str,
) -> None:
    """It expires within twice ``request_timeout_ms``, as documented, not within two minutes."""
    broker.faults.add(Fault(api=ApiKey.PRODUCE, times=None, **answer))
    async with make(request_timeout_ms=500) as producer:
        refused = await producer.send("t", b"v")
        with pytest.raises(error, match=message):
            await asyncio.wait_for(refused, 30)
        broker.faults.clear()
        assert await producer.send_and_wait("t", b"v")


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
async def test_a_cancelled_commit_or_abort_still_completes(make: Make, end: str) -> None:
    async with make(**MINE) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")
        await cancelled(getattr(producer, end)())
        while True:  # until it has ended
            try:
                await producer.begin_transaction()
            except aiokafka_errors.IllegalOperation:
                await asyncio.sleep(0.01)
            else:
                break
        await producer.commit_transaction()


async def cancelled(call: Any) -> None:
    """Cancel a call after the first step of its task."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


NAMES = sorted(
    name
    for name, value in vars(aiokafka_errors).items()
    if isinstance(value, type) and issubclass(value, Exception)
)


def test_every_error_class_of_aiokafka_has_a_subclass_in_kprod() -> None:
    for name in NAMES:
        kprod_error: type[Exception] = getattr(errors, name)
        assert issubclass(kprod_error, getattr(aiokafka_errors, name))
        assert issubclass(kprod_error, KprodError)
        for other in NAMES:  # some have an alias
            same = getattr(aiokafka_errors, name) is getattr(aiokafka_errors, other)
            assert same == (kprod_error is getattr(errors, other))


@pytest.mark.parametrize("code", [code for code in ErrorCode if code not in (0, FENCED)])
def test_each_error_code_is_caught_as_aiokafkas_class(code: int) -> None:
    """Codes without a class are UnknownError."""
    error = errors.for_aiokafka(BrokerError(code))
    known = aiokafka_errors.for_code(code)
    assert isinstance(error, known)
    assert isinstance(error, aiokafka_errors.UnknownError) == (
        known is aiokafka_errors.UnknownError
    )


def kinds() -> list[type[KprodError]]:
    """Errors that kprod raises itself, not for an error code of a broker."""
    own = [kind for kind in vars(native).values() if isinstance(kind, type)]
    return [
        kind
        for kind in own
        if issubclass(kind, KprodError)
        and not issubclass(kind, BrokerError | native.DeliveryError)
        and not issubclass(kind, RecordTypeError | InvalidRecordError | PartitionError)
    ]


@pytest.mark.parametrize("kind", kinds())
def test_errors_other_than_invalid_arguments_are_kafka_errors(kind: type[KprodError]) -> None:
    error = errors.for_aiokafka(kind("text"))
    assert isinstance(error, aiokafka_errors.KafkaError)
    assert isinstance(error, KprodError)
    assert "text" in str(error)


@pytest.mark.parametrize("topic", ["no topic", "\ud800"])
@pytest.mark.parametrize(
    "options",
    [{}, {"partitioner": lambda key, every, available: 0}],
    ids=["default", "own partitioner"],
)
async def test_an_invalid_topic_name_raises_aiokafkas_error(
    shared: Make, topic: str, options: dict[str, Any]
) -> None:
    async with shared(**options) as producer:
        calls: list[Callable[[str], Awaitable[object]]] = [
            lambda topic: producer.send(topic, b"v"),
            lambda topic: producer.send_and_wait(topic, b"v"),
            producer.partitions_for,
        ]
        for call in calls:
            with pytest.raises(aiokafka_errors.InvalidTopicError) as caught:
                await call(topic)
            assert isinstance(caught.value, ValueError)
        assert await producer.send_and_wait("t", b"v")
