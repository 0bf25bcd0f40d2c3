"""Every error class: retriable or not, its number, and copies and pickles with all attributes."""

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
BUILTIN_BASES = {
    **dict.fromkeys(("BufferFullError", "DeliveryTimeoutError", "KprodTimeoutError"), TimeoutError),
    **dict.fromkeys(("ConfigError", "InvalidRecordError", "InvalidTopicError"), ValueError),
    **dict.fromkeys(("PartitionError", "RecordTooLargeError"), ValueError),
    **dict.fromkeys(("IllegalStateError", "ProducerClosedError"), RuntimeError),
    **dict.fromkeys(("RecordTypeError", "SerializationError"), TypeError),
    "ConnectionLost": ConnectionError,
}


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_derive_from_the_matching_builtin_exceptions(kind: type[KprodError]) -> None:
    assert issubclass(kind, BUILTIN_BASES.get(kind.__name__, KprodError))


@pytest.mark.parametrize("kind", [KprodTimeoutError, DeliveryTimeoutError, ConnectionLost])
def test_timeouts_and_lost_connections_are_retriable(kind: type[KprodError]) -> None:
    assert kind("").retriable


# Codes --------------------------------------------------------------------------------------------
# The retriable codes of Apache Kafka 4.2, and those of them that need a metadata update: listed
# again here to detect a mistake in the table.
KAFKA_RETRIABLE = {2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78}
KAFKA_RETRIABLE |= {80, 83, 84, 88, 89, 100, 103, 106, 122, 123, 133}
KAFKA_REFRESHES = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
MAYBE_STORED = {-1, 7, 13, 20, 56}


def test_every_code_is_classified_as_retriable_and_maybe_persisted() -> None:
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


def test_the_number_is_not_part_of_the_message() -> None:
    error = DeliveryTimeoutError("late")
    assert traceback_of(error).endswith("DeliveryTimeoutError: late\n")
    assert (str(error), repr(error)) == ("late", "DeliveryTimeoutError('late')")
    assert (error.number, error.with_number()) == ("KP-1303", "late (KP-1303)")


def test_a_translated_error_keeps_the_number_of_the_original() -> None:
    error = translated(DeliveryTimeoutError("late"))
    assert isinstance(error, KprodError)
    assert (error.number, str(error)) == ("KP-1303", "KafkaTimeoutError: late")


TEXTS = st.text(max_size=20)


def pickled(error: Any) -> Any:
    return pickle.loads(pickle.dumps(error))


COPYING: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, pickled]
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


def contents(error: BaseException | None) -> Any:
    if error is None:
        return None
    flags = getattr(error, "retriable", None), getattr(error, "refreshes_metadata", None)
    return type(error), error.args, str(error), vars(error), flags, contents(error.__cause__)


@pytest.mark.parametrize("copied", COPYING)
@given(error=errors(causes=errors() | FOREIGN_CAUSES))
def test_copies_keep_everything(copied: Callable[[Any], Any], error: KprodError) -> None:
    assert contents(copied(error)) == contents(error)


@pytest.mark.parametrize("copied", COPYING)
def test_a_note_on_a_copy_does_not_change_the_original(copied: Callable[[Any], Any]) -> None:
    error = ConnectionLost("gone")
    error.add_note("first")
    copied(error).add_note("second")
    assert error.__notes__ == ["first"]


class Unreadable(Exception):
    """Its pickle cannot be loaded: ``__init__`` needs more than ``args``."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Mute(Exception):
    """Neither pickle nor str works."""

    def __init__(self) -> None:
        super().__init__(lambda: None)

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (Unreadable(7, "out of paper"), "test_errors.Unreadable: out of paper"),
        (Mute(), "test_errors.Mute: (it has no text)"),
        (OSError(5, lambda: None), "builtins.OSError: "),
    ],
    ids=["unreadable", "mute", "odd"],
)
def test_a_cause_that_cannot_be_pickled_becomes_text(cause: Exception, text: str) -> None:
    error = KprodError("the serializer failed")
    error.__cause__ = cause
    again = pickled(error)
    assert str(again) == "the serializer failed"
    assert type(again.__cause__) is KprodError
    assert text in str(again.__cause__)
    assert copy.copy(error).__cause__ is cause


def test_a_cycle_of_causes_can_be_pickled() -> None:
    first, second = KprodError("first"), ConnectionLost("second")
    first.__cause__, second.__cause__ = second, first
    again = pickled(first)
    assert again.__cause__.__cause__ is again


def test_the_handle_of_a_bulk_call_is_copied_but_not_pickled() -> None:
    error: Any = KprodError("no room")
    error.accepted, error.delivery = 3, threading.Lock()
    again = pickled(error)
    assert again.accepted == 3
    assert not hasattr(again, "delivery")
    assert copy.copy(error).delivery is error.delivery
