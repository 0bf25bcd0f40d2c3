"""Every error: where it stands in the tree, what it says of a retry, and how it travels."""

from __future__ import annotations

import inspect
import traceback

import pytest

from kprod import errors
from kprod.errors import (
    BrokerError,
    ConnectionLost,
    DeliveryTimeoutError,
    ErrorCode,
    KprodError,
    KprodTimeoutError,
)
from kprod.kafka.errors import translated
from kprod.types import Persisted

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, KprodError) and kind.__module__ == errors.__name__
]
NATURAL = {
    "BufferFullError": TimeoutError,
    "ConfigError": ValueError,
    "ConnectionLost": ConnectionError,
    "DeliveryTimeoutError": TimeoutError,
    "IllegalStateError": RuntimeError,
    "InvalidRecordError": ValueError,
    "InvalidTopicError": ValueError,
    "KprodTimeoutError": TimeoutError,
    "PartitionError": ValueError,
    "ProducerClosedError": RuntimeError,
    "RecordTooLargeError": ValueError,
    "RecordTypeError": TypeError,
    "SerializationError": TypeError,
}


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_are_what_python_users_expect_to_catch(kind: type[KprodError]) -> None:
    assert issubclass(kind, NATURAL.get(kind.__name__, KprodError))


@pytest.mark.parametrize("kind", [KprodTimeoutError, DeliveryTimeoutError, ConnectionLost])
def test_what_may_pass_is_retriable(kind: type[KprodError]) -> None:
    assert kind("").retriable


# Codes --------------------------------------------------------------------------------------------

# The retriable codes of Apache Kafka 4.2, and those of them that call for new metadata: written
# down again here, so that a slip in the table shows.
KAFKA_RETRIABLE = {2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78}
KAFKA_RETRIABLE |= {80, 83, 84, 88, 89, 100, 103, 106, 122, 123, 133}
KAFKA_REFRESHES = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
MAYBE_STORED = {-1, 7, 13, 20, 56}


def test_every_code_says_whether_to_retry_and_whether_the_batch_may_be_stored() -> None:
    for code in range(-1, 134):
        error = BrokerError(code)
        assert error.code == code
        assert error.retriable == (code in KAFKA_RETRIABLE)
        assert error.refreshes_metadata == (code in KAFKA_REFRESHES)
        maybe = code in MAYBE_STORED or code not in set(ErrorCode)
        assert error.persisted is (Persisted.MAYBE if maybe else Persisted.NO)


@pytest.mark.parametrize("code", [-32768, -2, 999, 32767])
def test_an_unknown_code_behaves_like_an_unknown_error(code: int) -> None:
    error, unknown = BrokerError(code), BrokerError(-1)
    assert (error.retriable, error.persisted) == (unknown.retriable, unknown.persisted)
    assert str(code) in str(error)


# Numbers ------------------------------------------------------------------------------------------


def traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_the_number_is_no_part_of_the_text() -> None:
    error = DeliveryTimeoutError("late")
    assert traceback_of(error).endswith("DeliveryTimeoutError: late\n")
    assert (str(error), repr(error)) == ("late", "DeliveryTimeoutError('late')")
    assert (error.number, error.with_number()) == ("KP-1303", "late (KP-1303)")


def test_an_error_under_another_packages_name_has_the_number_of_what_it_stands_for() -> None:
    told = translated(DeliveryTimeoutError("late"))
    assert isinstance(told, KprodError)
    assert (told.number, str(told)) == ("KP-1303", "KafkaTimeoutError: late")
