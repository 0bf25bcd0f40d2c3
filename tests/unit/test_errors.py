"""Every error: what it says of a retry, its number, and how it travels with all it knows."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod import errors as native
from kprod.errors import (
    BrokerError,
    ConnectionLost,
    DeliveryError,
    DeliveryTimeoutError,
    ErrorCode,
    KprodError,
    KprodTimeoutError,
)
from kprod.kafka.errors import translated
from kprod.types import Persisted, TopicPartition

CLASSES = [
    kind
    for _, kind in inspect.getmembers(native, inspect.isclass)
    if issubclass(kind, KprodError) and kind.__module__ == native.__name__
]
NATURAL = {
    **dict.fromkeys(("BufferFullError", "DeliveryTimeoutError", "KprodTimeoutError"), TimeoutError),
    **dict.fromkeys(("ConfigError", "InvalidRecordError", "InvalidTopicError"), ValueError),
    **dict.fromkeys(("PartitionError", "RecordTooLargeError"), ValueError),
    **dict.fromkeys(("IllegalStateError", "ProducerClosedError"), RuntimeError),
    **dict.fromkeys(("RecordTypeError", "SerializationError"), TypeError),
    "ConnectionLost": ConnectionError,
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
    for code in (-32768, -2, *range(-1, 134), 999, 32767):
        error = BrokerError(code)
        assert error.code == code
        assert code in set(ErrorCode) or str(code) in str(error)
        assert error.retriable == (code in KAFKA_RETRIABLE)
        assert error.refreshes_metadata == (code in KAFKA_REFRESHES)
        maybe = code in MAYBE_STORED or code not in set(ErrorCode)
        assert error.persisted is (Persisted.MAYBE if maybe else Persisted.NO)


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


TEXTS = st.text(max_size=20)


def pickled(error: Any) -> Any:
    return pickle.loads(pickle.dumps(error))


WAYS: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, pickled]
FOREIGN_CAUSES = st.one_of(
    st.none(),
    st.builds(OSError, st.integers(0, 200), TEXTS),
    st.builds(ValueError, TEXTS),
    st.just(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")),
    st.just(ConnectionResetError()),
)


@st.composite
def errors(draw: st.DrawFn, causes: st.SearchStrategy[Any] = FOREIGN_CAUSES) -> KprodError:
    """An error of any class, with attributes, notes and a cause."""
    kind = draw(st.sampled_from(CLASSES))
    error: KprodError
    if kind is BrokerError:
        error = BrokerError(draw(st.integers(-2, 140)), draw(TEXTS))
    elif kind is DeliveryError:
        tp = draw(st.none() | st.builds(TopicPartition, TEXTS, st.integers(0, 9)))
        counts = dict.fromkeys(("acknowledged", "failed", "pending"), draw(st.integers(0, 9)))
        error = DeliveryError(draw(TEXTS), **counts, topic_partition=tp)
    else:
        error = kind(draw(TEXTS))
    error.persisted = draw(st.sampled_from(Persisted))
    for note in draw(st.lists(TEXTS, max_size=2)):
        error.add_note(note)
    error.__cause__ = draw(causes)
    return error


def told(error: BaseException | None) -> Any:
    if error is None:
        return None
    flags = getattr(error, "retriable", None), getattr(error, "refreshes_metadata", None)
    return type(error), error.args, str(error), vars(error), flags, told(error.__cause__)


@pytest.mark.parametrize("way", WAYS)
@given(error=errors(causes=errors() | FOREIGN_CAUSES))
def test_errors_travel_with_all_they_know(way: Callable[[Any], Any], error: KprodError) -> None:
    again = way(error)
    assert told(again) == told(error)


@pytest.mark.parametrize("way", WAYS)
def test_a_note_on_the_copy_is_not_one_on_the_original(way: Callable[[Any], Any]) -> None:
    error = ConnectionLost("gone")
    error.add_note("first")
    way(error).add_note("second")
    assert error.__notes__ == ["first"]


class Application(Exception):
    """Its pickle cannot be read: ``__init__`` wants what ``args`` has not."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Mute(Exception):
    """It cannot be pickled, and not be written either."""

    def __init__(self) -> None:
        super().__init__(lambda: None)

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (Application(7, "out of paper"), "test_errors.Application: out of paper"),
        (Mute(), "test_errors.Mute: (it has no text)"),
        (OSError(5, lambda: None), "builtins.OSError: "),
    ],
    ids=["unreadable", "mute", "odd"],
)
def test_a_cause_that_may_not_be_readable_elsewhere_is_told_in_words(
    cause: Exception, said: str
) -> None:
    error = KprodError("the serializer failed")
    error.__cause__ = cause
    again = pickled(error)
    assert str(again) == "the serializer failed"
    assert type(again.__cause__) is KprodError
    assert said in str(again.__cause__)
    assert copy.copy(error).__cause__ is cause


def test_an_error_that_caused_itself() -> None:
    first, second = KprodError("first"), ConnectionLost("second")
    first.__cause__, second.__cause__ = second, first
    again = pickled(first)
    assert again.__cause__.__cause__ is again


def test_the_handle_of_a_bulk_call_stays_in_its_process() -> None:
    error: Any = KprodError("no room")
    error.accepted, error.delivery = 3, threading.Lock()
    again = pickled(error)
    assert again.accepted == 3
    assert not hasattr(again, "delivery")
    assert copy.copy(error).delivery is error.delivery
