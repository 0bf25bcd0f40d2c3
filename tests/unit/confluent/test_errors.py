"""librdkafka's codes and words, and what kprod's errors are among them."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys

import confluent_kafka
import pytest

from kprod import errors as native
from kprod.confluent import (
    KafkaError,
    KafkaException,
    KeySerializationError,
    ProduceError,
    Producer,
    ValueSerializationError,
)
from kprod.confluent.error_codes import BROKER, LOCAL
from kprod.confluent.errors import from_native
from kprod.types import Persisted

THEIRS = {
    name: code for name, code in vars(confluent_kafka.KafkaError).items() if isinstance(code, int)
}


def test_every_code_has_their_name_and_words() -> None:
    for name, code in THEIRS.items():
        assert getattr(KafkaError, name) == code
        ours, original = KafkaError(code), confluent_kafka.KafkaError(code)
        assert (ours.name(), ours.str()) == (original.name(), original.str())
        assert repr(ours) == str(ours) == repr(original)
    assert set(THEIRS.values()) == {*LOCAL, *BROKER}


def test_a_code_nobody_knows_has_no_attribute() -> None:
    with pytest.raises(AttributeError, match="_NO_SUCH_CODE"):
        KafkaError._NO_SUCH_CODE  # noqa: B018
    assert KafkaError(4242).code() == 4242


def test_errors_equal_their_codes() -> None:
    error = KafkaError(KafkaError._MSG_TIMED_OUT, "too late", retriable=True)
    assert error == KafkaError._MSG_TIMED_OUT
    assert error == KafkaError(-192)
    assert error != KafkaError(3)
    assert len({error, KafkaError(-192)}) == 1
    again = pickle.loads(pickle.dumps(error))
    assert (again.str(), again.retriable(), again.fatal()) == ("too late", True, False)
    assert not again.txn_requires_abort()


def test_exceptions_carry_them() -> None:
    with pytest.raises(KafkaException) as caught:
        raise KafkaException(KafkaError(3))
    assert caught.value.args[0].code() == 3
    cause = ValueError("no number")
    for kind, code in ((KeySerializationError, -162), (ValueSerializationError, -161)):
        error = kind(cause)
        assert isinstance(error, ProduceError)
        assert (error.code, error.exception, error.args[0].str()) == (code, cause, "no number")
    assert ProduceError(KafkaError(3)).name == "UNKNOWN_TOPIC_OR_PART"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (native.DeliveryTimeoutError("x"), "_MSG_TIMED_OUT", "Local: Message timed out: x"),
        (native.BufferFullError("x"), "_QUEUE_FULL", "Local: Queue full: x"),
        (native.BrokerError(29, "t"), "TOPIC_AUTHORIZATION_FAILED", "Broker: Topic authorization"),
        (native.BrokerError(999, "t"), "ERR_999?", "UNKNOWN_ERROR_999: t"),
        (native.RecordTooLargeError("x"), "MSG_SIZE_TOO_LARGE", "Broker: Message size too large"),
        (native.PartitionError("x"), "_UNKNOWN_PARTITION", "Local: Unknown partition: x"),
        (native.InvalidRecordError("x"), "_INVALID_ARG", "Local: Invalid argument or config"),
        (native.ConnectionLost("x"), "_TRANSPORT", "Local: Broker transport failure: x"),
        (native.KprodError("x"), "_FAIL", "Local: Communication failure with broker: x"),
    ],
)
def test_errors_of_kprod_have_a_code(error: native.KprodError, code: str, words: str) -> None:
    told = from_native(error)
    assert told.name() == code
    assert told.str().startswith(words)
    assert told.retriable() == error.retriable


def test_a_call_while_another_has_not_ended_is_a_conflict_that_passes() -> None:
    told = from_native(native.UnfinishedCallError("x"))
    assert (told.name(), told.retriable(), told.fatal()) == ("_CONFLICT", True, False)
    assert from_native(native.IllegalStateError("x")).name() == "_STATE"


def test_what_never_left_and_what_may_have_been_stored_are_told_apart_by_purge() -> None:
    closed = native.ProducerClosedError("x")
    assert from_native(closed).name() == "_PURGE_QUEUE"
    closed.persisted = Persisted.MAYBE
    assert from_native(closed).name() == "_PURGE_INFLIGHT"


def test_a_connection_that_is_refused_for_a_reason_has_its_code() -> None:
    resolving = native.ConnectionLost("x")
    resolving.__cause__ = socket.gaierror(-2, "Name or service not known")
    for error, name in (
        (native.TlsAuthenticationError("x"), "_SSL"),
        (native.SaslAuthenticationError("x"), "_AUTHENTICATION"),
        (resolving, "_RESOLVE"),
    ):
        assert from_native(error).name() == name


def test_an_error_can_be_raised() -> None:
    with pytest.raises(KafkaException, match=r"Err-12345\?") as caught:
        raise KafkaError(12345)
    assert caught.value.args[0].code() == 12345
    with pytest.raises(KafkaException) as raised:
        raise KafkaError(3, fatal=True)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.code(), again.fatal()) == (3, True)


def test_programs_that_import_confluent_kafka_catch_ours_by_theirs() -> None:
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        Producer({"no.such": 1})
    assert isinstance(caught.value, KafkaException)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.args) == (KafkaException, caught.value.args)


def test_the_face_loads_neither_asyncio_nor_librdkafka() -> None:
    script = """
import sys
import kprod.confluent as face
face.Producer({"bootstrap.servers": "127.0.0.1:1"}).close()
print(*[name for name in ("asyncio", "confluent_kafka") if name in sys.modules])
assert face.AIOProducer.__name__ == "AIOProducer" and "asyncio" in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
