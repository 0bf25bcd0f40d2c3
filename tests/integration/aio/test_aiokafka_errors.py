"""What a program written for aiokafka catches when brokers refuse, or answer nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import aiokafka.errors as theirs
import pytest

from kprod import errors as native
from kprod.aio import AIOKafkaProducer, errors
from kprod.broker import EmbeddedBroker
from kprod.broker.faults import Fault
from kprod.broker.protocol.api_key import ApiKey
from kprod.errors import (
    BrokerError,
    ErrorCode,
    InvalidRecordError,
    KprodError,
    PartitionError,
    RecordTypeError,
)
from kprod.types import NextStep

GROUP_DENIED, CLUSTER_DENIED, ID_DENIED, OUT_OF_ORDER = 30, 31, 53, 45
STALE_EPOCH, FENCED = 47, 90


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 2}) as made:
        yield made


def producing(
    broker: EmbeddedBroker, use: Callable[[AIOKafkaProducer], Awaitable[None]], **options: Any
) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options)
        try:
            await use(producer)
        finally:
            await producer.stop()

    asyncio.run(main())


@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID])
def test_a_denied_transactional_id_ends_start(broker: EmbeddedBroker, api: ApiKey) -> None:
    async def use(producer: AIOKafkaProducer) -> None:
        with pytest.raises(theirs.TransactionalIdAuthorizationFailed, match="of 'mine'") as caught:
            await producer.start()
        assert caught.value.next_step is NextStep.CLOSE
        with pytest.raises(theirs.TransactionalIdAuthorizationFailed, match="of 'mine'"):
            await producer.start()

    broker.faults.add(Fault(api=api, error=ID_DENIED, times=None))
    producing(broker, use, transactional_id="mine")


@pytest.mark.parametrize("api", [ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT])
def test_a_denied_group_is_named_until_the_transaction_is_aborted(
    broker: EmbeddedBroker, api: ApiKey
) -> None:
    async def use(producer: AIOKafkaProducer) -> None:
        await producer.start()
        await producer.begin_transaction()
        with pytest.raises(theirs.GroupAuthorizationFailedError, match="only be aborted"):
            await producer.send_offsets_to_transaction({("t", 0): 3}, "g")
        with pytest.raises(theirs.GroupAuthorizationFailedError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait("t", b"v")

    broker.set_transaction_version(1)
    broker.faults.add(Fault(api=api, error=GROUP_DENIED))
    producing(broker, use, transactional_id="mine")


def test_a_lost_sequence_in_a_transaction_has_its_own_name(broker: EmbeddedBroker) -> None:
    async def use(producer: AIOKafkaProducer) -> None:
        await producer.start()
        with pytest.raises(theirs.OutOfOrderSequenceNumber):
            await losing_a_sequence(producer)
        async with producer.transaction():
            await producer.send_and_wait("t", b"3", partition=0)

    async def losing_a_sequence(producer: AIOKafkaProducer) -> None:
        async with producer.transaction():
            await producer.send_and_wait("t", b"1", partition=0)
            broker.faults.add(Fault(api=ApiKey.PRODUCE, error=OUT_OF_ORDER))
            await producer.send_and_wait("t", b"2", partition=0)

    producing(broker, use, transactional_id="mine")


class Answered(NamedTuple):
    """An error that brokers go on to answer with, and what aiokafka raises in the end."""

    code: int
    raised: type[theirs.KafkaError]


@pytest.mark.parametrize(
    "answered",
    [
        Answered(5, theirs.LeaderNotAvailableError),
        Answered(6, theirs.NotLeaderForPartitionError),
        Answered(7, theirs.RequestTimedOutError),
    ],
)
def test_a_record_that_expires_tells_what_brokers_told(
    broker: EmbeddedBroker, answered: Answered
) -> None:
    async def use(producer: AIOKafkaProducer) -> None:
        await producer.start()
        refused = await producer.send("t", b"v")
        with pytest.raises(answered.raised):
            await asyncio.wait_for(refused, 30)
        broker.faults.clear()
        assert await producer.send_and_wait("t", b"v")

    broker.faults.add(Fault(api=ApiKey.PRODUCE, error=answered.code, times=None))
    producing(broker, use, request_timeout_ms=200)


def test_requests_without_an_answer_end_a_record_as_aiokafkas_do(broker: EmbeddedBroker) -> None:
    """Within twice ``request_timeout_ms``, as its documentation says, not within two minutes."""

    async def use(producer: AIOKafkaProducer) -> None:
        await producer.start()
        future = await producer.send("t", b"v")
        with pytest.raises(theirs.KafkaTimeoutError, match=r"delivery_timeout_ms \(400 ms\)"):
            await asyncio.wait_for(future, 30)

    broker.faults.add(Fault(api=ApiKey.PRODUCE, drop=True, times=None))
    producing(broker, use, request_timeout_ms=200)


def test_no_idempotent_writes_ends_start(broker: EmbeddedBroker) -> None:
    async def use(producer: AIOKafkaProducer) -> None:
        with pytest.raises(theirs.ClusterAuthorizationFailedError, match="producer id"):
            await producer.start()

    broker.faults.add(Fault(api=ApiKey.INIT_PRODUCER_ID, error=CLUSTER_DENIED, times=None))
    producing(broker, use, enable_idempotence=True)


def test_a_cancelled_begin_has_begun_nothing(broker: EmbeddedBroker) -> None:
    async def use(producer: AIOKafkaProducer) -> None:
        await producer.start()
        await cancelled(producer.begin_transaction())
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")

    producing(broker, use, transactional_id="mine")


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_a_cancelled_end_goes_on(broker: EmbeddedBroker, end: str) -> None:
    async def use(producer: AIOKafkaProducer) -> None:
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")
        await cancelled(getattr(producer, end)())
        while True:  # until it has ended
            try:
                await producer.begin_transaction()
            except theirs.IllegalOperation:
                await asyncio.sleep(0.01)
            else:
                break
        await producer.commit_transaction()

    producing(broker, use, transactional_id="mine")


async def cancelled(call: Any) -> None:
    """Cancel a call after the first turn of its task."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


NAMES = sorted(
    name
    for name, value in vars(theirs).items()
    if isinstance(value, type) and issubclass(value, Exception)
)


def test_every_name_of_aiokafkas_errors_is_one_of_ours() -> None:
    for name in NAMES:
        ours: type[Exception] = getattr(errors, name)
        assert issubclass(ours, getattr(theirs, name))
        assert issubclass(ours, KprodError)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("InvalidMessageError", "CorruptRecordException"),
        ("GroupLoadInProgressError", "CoordinatorLoadInProgressError"),
    ],
)
def test_two_names_of_a_class_are_two_names_of_ours(name: str, other: str) -> None:
    assert getattr(theirs, name) is getattr(theirs, other)
    assert getattr(errors, name) is getattr(errors, other)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code not in (0, FENCED)])
def test_each_code_is_caught_as_aiokafkas_class_of_it(code: int) -> None:
    """Codes that it has no class for are its UnknownError."""
    told = errors.for_aiokafka(BrokerError(code))
    known = theirs.for_code(code)
    assert isinstance(told, known)
    assert isinstance(told, theirs.UnknownError) == (known is theirs.UnknownError)


def kinds() -> list[type[KprodError]]:
    """All that kprod raises itself, not for one code of a broker."""
    own = [kind for kind in vars(native).values() if isinstance(kind, type)]
    return [
        kind
        for kind in own
        if issubclass(kind, KprodError)
        and not issubclass(kind, BrokerError | native.DeliveryError)
        and not issubclass(kind, RecordTypeError | InvalidRecordError | PartitionError)
    ]


@pytest.mark.parametrize("kind", kinds())
def test_what_is_no_mistake_in_an_argument_is_one_of_aiokafkas_errors(
    kind: type[KprodError],
) -> None:
    told = errors.for_aiokafka(kind("text"))
    assert isinstance(told, theirs.KafkaError)
    assert isinstance(told, KprodError)
    assert "text" in str(told)


def test_a_topic_of_no_possible_name_has_aiokafkas_error(broker: EmbeddedBroker) -> None:
    async def use(producer: AIOKafkaProducer) -> None:
        await producer.start()
        calls: list[Callable[[str], Awaitable[object]]] = [
            lambda topic: producer.send(topic, b"v"),
            lambda topic: producer.send_and_wait(topic, b"v"),
            producer.partitions_for,
        ]
        for call in calls:
            with pytest.raises(theirs.InvalidTopicError, match="no topic") as caught:
                await call("no topic")
            assert isinstance(caught.value, ValueError)

    producing(broker, use)


def test_a_stale_epoch_is_a_fenced_producers_as_there() -> None:
    told = errors.for_aiokafka(BrokerError(STALE_EPOCH))
    assert isinstance(told, theirs.ProducerFenced)
    assert isinstance(told, theirs.InvalidProducerEpoch)
    assert isinstance(told, errors.ProducerFenced)


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_is_not_there_has_the_name_of_old(code: int) -> None:
    told = errors.for_aiokafka(BrokerError(code))
    assert isinstance(told, theirs.for_code(code))
