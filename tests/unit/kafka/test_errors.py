"""Errors of the face are caught under kafka-python's names, with its package and without."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from typing import Any

import pytest

from kprod import errors as native
from kprod.kafka import errors
from kprod.kafka.errors import translated
from kprod.types import Persisted

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, when it is imported
    from kafka import errors as theirs

THEIR_CLASSES = {
    name: found
    for name, found in vars(theirs).items()
    if isinstance(found, type) and issubclass(found, theirs.KafkaError)
}


def test_every_class_of_theirs_has_one_here_with_the_same_relations() -> None:
    for name, original in THEIR_CLASSES.items():
        ours = getattr(errors, name)
        assert issubclass(ours, original)
        assert issubclass(ours, native.KafkaError)
        for attribute in ("errno", "message", "retriable", "invalid_metadata"):
            assert getattr(ours, attribute, None) == getattr(original, attribute, None)
        above = [other for other in THEIR_CLASSES if issubclass(original, THEIR_CLASSES[other])]
        assert all(issubclass(ours, getattr(errors, other)) for other in above)


def test_every_code_has_its_class() -> None:
    assert errors.for_code(3) is errors.UnknownTopicOrPartitionError
    assert set(theirs.kafka_errors) - {None} <= set(errors.kafka_errors)
    unknown = errors.for_code(999)
    assert (unknown.errno, issubclass(unknown, theirs.UnknownError)) == (999, True)


def test_errors_read_as_theirs_do() -> None:
    for kind in ("KafkaTimeoutError", "UnknownTopicOrPartitionError", "KafkaError"):
        for args in ((), ("why",)):
            assert str(getattr(errors, kind)(*args)) == str(getattr(theirs, kind)(*args))
    assert errors.KafkaTimeoutError("a") == errors.KafkaTimeoutError("a")
    assert errors.KafkaTimeoutError("a") != errors.KafkaError("a")
    assert len({errors.KafkaError("a"), errors.KafkaError("a")}) == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (native.BrokerError(3, "t"), errors.UnknownTopicOrPartitionError),
        (native.BrokerError(29), errors.TopicAuthorizationFailedError),
        (native.BrokerError(999), errors.UnknownError),
        (native.RecordTooLargeError("x"), errors.MessageSizeTooLargeError),
        (native.BufferFullError("x"), errors.KafkaTimeoutError),
        (native.DeliveryTimeoutError("x"), errors.KafkaTimeoutError),
        (native.ConnectionLost("x"), errors.KafkaConnectionError),
        (native.ProtocolError("x"), errors.KafkaProtocolError),
        (native.ConfigError("x"), errors.KafkaConfigurationError),
        (native.ProducerClosedError("x"), errors.IllegalStateError),
        (native.InvalidBatchError("x"), errors.InvalidRecordError),
        (native.KprodError("x"), errors.KafkaError),
        (errors.KafkaError("x"), errors.KafkaError),
    ],
)
def test_errors_of_kprod_become_theirs(error: native.KprodError, expected: type[Exception]) -> None:
    error.persisted = Persisted.MAYBE
    told = translated(error)
    assert type(told) is expected
    assert told is error or told.__cause__ is error
    assert getattr(told, "persisted", None) is Persisted.MAYBE
    again = pickle.loads(pickle.dumps(told))
    assert (type(again), again.args) == (type(told), told.args)


def test_a_code_that_is_not_known_keeps_its_number() -> None:
    told: Any = translated(native.BrokerError(999, "odd"))
    assert (told.errno, told.message) == (999, "UNKNOWN_ERROR_999")
    assert pickle.loads(pickle.dumps(told)).errno == 999


def test_errors_of_arguments_are_what_they_were() -> None:
    for error in (native.RecordTypeError("x"), native.PartitionError("x")):
        assert translated(error) is error


ALONE = """
import sys, types
sys.modules["kafka"] = {fake}
import kprod.kafka.errors as errors
try:
    raise errors.NoBrokersAvailable("nobody")
except errors.KafkaTimeoutError as error:
    print(error)
print(errors.KafkaError.__bases__)
"""


@pytest.mark.parametrize("fake", ["None", "types.ModuleType('kafka')"])
def test_without_kafka_python_they_stand_alone(fake: str) -> None:
    """Also where something else is called ``kafka``: a folder of the application's, perhaps."""
    ran = subprocess.run(
        [sys.executable, "-c", ALONE.format(fake=fake)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == [
        "NoBrokersAvailable: nobody",
        "(<class 'kprod.errors.KprodError'>,)",
    ]
