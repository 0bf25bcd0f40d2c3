"""Errors go through pickles and copies with all they know: a Spark task's reach the driver."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod.errors import BrokerError, ConnectionLost, DeliveryError, KprodError
from kprod.types import Persisted, TopicPartition
from tests.unit.test_errors import CLASSES

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
    """Everything that an error tells."""
    if error is None:
        return None
    return type(error), error.args, str(error), vars(error), told(error.__cause__)


@pytest.mark.parametrize("way", WAYS)
@given(error=errors(causes=errors() | FOREIGN_CAUSES))
def test_errors_travel_with_all_they_know(way: Callable[[Any], Any], error: KprodError) -> None:
    again = way(error)
    assert told(again) == told(error)
    assert (again.retriable, again.refreshes_metadata) == (
        error.retriable,
        error.refreshes_metadata,
    )


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
        (Application(7, "out of paper"), "test_error_travel.Application: out of paper"),
        (Mute(), "test_error_travel.Mute: (it has no text)"),
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
