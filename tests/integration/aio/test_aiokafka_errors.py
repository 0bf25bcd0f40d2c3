"""What a program written for aiokafka catches when brokers refuse, or answer nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka.errors as theirs
import pytest

from kprod import errors as native
from kprod.aio import errors
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
from tests.integration.aio.conftest import Make

STALE_EPOCH, FENCED = 47, 90
MINE = {"transactional_id": "mine"}


@pytest.mark.parametrize(
    ("api", "code", "options", "error"),
    [
        (ApiKey.FIND_COORDINATOR, 53, MINE, theirs.TransactionalIdAuthorizationFailed),
        (ApiKey.INIT_PRODUCER_ID, 53, MINE, theirs.TransactionalIdAuthorizationFailed),
        (
            ApiKey.INIT_PRODUCER_ID,
            31,
            {"enable_idempotence": True},
            theirs.ClusterAuthorizationFailedError,
        ),
    ],
)
async def test_who_may_not_write_hears_of_it_at_each_start(
    broker: EmbeddedBroker,
    make: Make,
    api: ApiKey,
    code: int,
    options: dict[str, Any],
    error: type[theirs.KafkaError],
) -> None:
    broker.faults.add(Fault(api=api, error=code, times=None))
    producer = make(**options)
    words = "of 'mine'" if options is MINE else "producer id"
    for _ in range(2):
        with pytest.raises(error, match=words) as caught:
            await producer.start()
        assert options is not MINE or caught.value.next_step is NextStep.CLOSE
    await producer.stop()


@pytest.mark.parametrize("api", [ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT])
async def test_a_denied_group_is_named_until_the_transaction_is_aborted(
    broker: EmbeddedBroker, make: Make, api: ApiKey
) -> None:
    broker.set_transaction_version(1)
    broker.faults.add(Fault(api=api, error=30))
    async with make(**MINE) as producer:
        await producer.begin_transaction()
        with pytest.raises(theirs.GroupAuthorizationFailedError, match="only be aborted"):
            await producer.send_offsets_to_transaction({("t", 0): 3}, "g")
        with pytest.raises(theirs.GroupAuthorizationFailedError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait("t", b"v")


async def test_a_lost_sequence_in_a_transaction_has_its_own_name(
    broker: EmbeddedBroker, make: Make
) -> None:
    async def losing_a_sequence() -> None:
        async with producer.transaction():
            await producer.send_and_wait("t", b"1", partition=0)
            broker.faults.add(Fault(api=ApiKey.PRODUCE, error=45))
            await producer.send_and_wait("t", b"2", partition=0)

    async with make(**MINE) as producer:
        with pytest.raises(theirs.OutOfOrderSequenceNumber):
            await losing_a_sequence()
        async with producer.transaction():
            await producer.send_and_wait("t", b"3", partition=0)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ({"error": 5}, theirs.LeaderNotAvailableError, r"t-\d"),
        ({"error": 6}, theirs.NotLeaderForPartitionError, r"t-\d"),
        ({"error": 7}, theirs.RequestTimedOutError, r"t-\d"),
        ({"drop": True}, theirs.KafkaTimeoutError, r"delivery_timeout_ms \(1000 ms\)"),
    ],
)
async def test_a_record_that_expires_tells_what_brokers_told(
    broker: EmbeddedBroker,
    make: Make,
    answer: dict[str, Any],
    error: type[theirs.KafkaError],
    words: str,
) -> None:
    """Within twice ``request_timeout_ms``, as its documentation says, not within two minutes."""
    broker.faults.add(Fault(api=ApiKey.PRODUCE, times=None, **answer))
    async with make(request_timeout_ms=500) as producer:
        refused = await producer.send("t", b"v")
        with pytest.raises(error, match=words):
            await asyncio.wait_for(refused, 30)
        broker.faults.clear()
        assert await producer.send_and_wait("t", b"v")


async def test_a_cancelled_begin_has_begun_nothing(make: Make) -> None:
    async with make(**MINE) as producer:
        await cancelled(producer.begin_transaction())
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
async def test_a_cancelled_end_goes_on(make: Make, end: str) -> None:
    async with make(**MINE) as producer:
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
        for other in NAMES:  # some have two
            same = getattr(theirs, name) is getattr(theirs, other)
            assert same == (ours is getattr(errors, other))


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


async def test_a_topic_of_no_possible_name_has_aiokafkas_error(make: Make) -> None:
    async with make() as producer:
        calls: list[Callable[[str], Awaitable[object]]] = [
            lambda topic: producer.send(topic, b"v"),
            lambda topic: producer.send_and_wait(topic, b"v"),
            producer.partitions_for,
        ]
        for call in calls:
            with pytest.raises(theirs.InvalidTopicError, match="no topic") as caught:
                await call("no topic")
            assert isinstance(caught.value, ValueError)


def test_a_stale_epoch_is_a_fenced_producers_as_there() -> None:
    told = errors.for_aiokafka(BrokerError(STALE_EPOCH))
    assert isinstance(told, theirs.ProducerFenced)
    assert isinstance(told, theirs.InvalidProducerEpoch)
    assert isinstance(told, errors.ProducerFenced)
