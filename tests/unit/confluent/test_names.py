"""The confluent-kafka API: errors, messages, partitions and group members."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
from functools import partial
from typing import Any

import confluent_kafka
import pytest

from kprod import GroupMetadata
from kprod import errors as native
from kprod.confluent import (
    OFFSET_END,
    KafkaError,
    KafkaException,
    KeySerializationError,
    Message,
    ProduceError,
    Producer,
    TopicPartition,
    ValueSerializationError,
    consistent,
    fnv1a,
    murmur2,
    version,
)
from kprod.confluent.error_codes import BROKER, LOCAL
from kprod.confluent.errors import from_native
from kprod.errors import RecordTypeError
from kprod.transactional.group_offsets import group_member
from kprod.types import Persisted
from tests.support.ports import free_port

ORIGINAL_CODES = {
    name: code for name, code in vars(confluent_kafka.KafkaError).items() if isinstance(code, int)
}


def test_every_code_has_the_name_and_text_of_librdkafka() -> None:
    for name, code in ORIGINAL_CODES.items():
        assert getattr(KafkaError, name) == code
        ours, original = KafkaError(code), confluent_kafka.KafkaError(code)
        assert (ours.name(), ours.str()) == (original.name(), original.str())
        assert repr(ours) == str(ours) == repr(original)
    assert set(ORIGINAL_CODES.values()) == {*LOCAL, *BROKER}
    with pytest.raises(AttributeError, match="_NO_SUCH_CODE"):
        KafkaError._NO_SUCH_CODE  # noqa: B018
    assert KafkaError(4242).code() == 4242


def test_an_error_equals_its_code() -> None:
    error = KafkaError(KafkaError._MSG_TIMED_OUT, "too late", retriable=True)
    assert error == KafkaError._MSG_TIMED_OUT
    assert error == KafkaError(-192)
    assert error != KafkaError(3)
    assert len({error, KafkaError(-192)}) == 1
    again = pickle.loads(pickle.dumps(error))
    assert (again.str(), again.retriable(), again.fatal()) == ("too late", True, False)
    assert not again.txn_requires_abort()


def test_exceptions_carry_the_error() -> None:
    with pytest.raises(KafkaException) as caught:
        raise KafkaException(KafkaError(3))
    assert caught.value.args[0].code() == 3
    cause = ValueError("no number")
    for kind, code in ((KeySerializationError, -162), (ValueSerializationError, -161)):
        error = kind(cause)
        assert isinstance(error, ProduceError)
        assert (error.code, error.exception, error.args[0].str()) == (code, cause, "no number")
    assert ProduceError(KafkaError(3)).name == "UNKNOWN_TOPIC_OR_PART"
    with pytest.raises(KafkaException, match=r"Err-12345\?") as itself:
        raise KafkaError(12345, fatal=True)
    again = pickle.loads(pickle.dumps(itself.value))
    assert (again.code(), again.fatal()) == (12345, True)


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
        (native.IllegalStateError("x"), "_STATE", "Local: "),
        (native.UnfinishedCallError("x"), "_CONFLICT", "Local: "),
        (native.TlsAuthenticationError("x"), "_SSL", "Local: "),
        (native.SaslAuthenticationError("x"), "_AUTHENTICATION", "Local: "),
    ],
)
def test_native_errors_have_a_code(error: native.KprodError, code: str, words: str) -> None:
    result = from_native(error)
    assert result.name() == code
    assert result.str().startswith(words)
    conflict = isinstance(error, native.UnfinishedCallError)  # retriable
    assert result.retriable() == (error.retriable or conflict)
    assert not result.fatal()


def test_purge_codes_distinguish_unsent_from_maybe_stored_records() -> None:
    closed = native.ProducerClosedError("x")
    assert from_native(closed).name() == "_PURGE_QUEUE"
    closed.persisted = Persisted.MAYBE
    assert from_native(closed).name() == "_PURGE_INFLIGHT"


def test_an_unresolved_host_name_has_its_own_code() -> None:
    resolving = native.ConnectionLost("x")
    resolving.__cause__ = socket.gaierror(-2, "Name or service not known")
    assert from_native(resolving).name() == "_RESOLVE"


def test_errors_can_be_caught_as_the_classes_of_confluent_kafka() -> None:
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        Producer({"no.such": 1})
    assert isinstance(caught.value, KafkaException)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.args) == (KafkaException, caught.value.args)


def test_importing_the_package_loads_neither_asyncio_nor_librdkafka() -> None:
    script = """
import sys
import kprod.confluent as package
package.Producer({"bootstrap.servers": "127.0.0.1:1"}).close()
print(*[name for name in ("asyncio", "confluent_kafka") if name in sys.modules])
assert package.AIOProducer.__name__ == "AIOProducer" and "asyncio" in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


ARGUMENTS = ("t", 1, 2, b"k", b"value", [("h", b"x")], None, (1, 4), 5.5, 3, 6)


def test_a_message_returns_its_arguments() -> None:
    message = Message(*ARGUMENTS)
    first = (message.topic(), message.partition(), message.offset(), message.key(), message.value())
    assert first == ARGUMENTS[:5]
    rest = (message.headers(), message.error(), message.timestamp(), message.latency())
    assert (*rest, message.leader_epoch(), message.delivery_count()) == ARGUMENTS[5:]
    assert len(message) == 5
    assert (message.deserialized_key(), message.deserialized_value()) == ARGUMENTS[3:5]


def test_a_message_has_every_public_method_of_the_original() -> None:
    names = {name for name in vars(confluent_kafka.Message) if not name.startswith("_")}
    assert names <= set(dir(Message))


def test_missing_attributes_of_a_message_are_none() -> None:
    message = Message()
    assert message.partition() is message.offset() is message.latency() is None
    assert message.leader_epoch() is message.delivery_count() is message.topic() is None
    assert message.timestamp() == (0, 0)
    assert len(message) == 0
    assert bool(message)


def test_messages_are_compared_and_pickled_by_value() -> None:
    message = Message(*ARGUMENTS)
    assert message == pickle.loads(pickle.dumps(message)) == Message(*ARGUMENTS)
    assert message != Message()
    assert message != 1
    with pytest.raises(TypeError):
        hash(message)
    with pytest.raises(OverflowError):
        Message(delivery_count=2**15)


def test_partitioner_functions_give_the_original_partitions() -> None:
    for key in (b"a", b"key", bytes(range(200))):
        for function in (murmur2, consistent, fnv1a):
            original = getattr(confluent_kafka, function.__name__)
            assert function(key, 7) == original(key, 7)
    with pytest.raises(ValueError, match="partition_count must be > 0"):
        murmur2(b"k", 0)
    with pytest.raises(TypeError):
        murmur2("k", 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        murmur2(b"k", "1")  # type: ignore[arg-type]
    assert version()


@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": "t"},
        {"topic": "t", "partition": 3, "offset": 7, "metadata": "mine", "leader_epoch": 2},
        {"topic": "t", "leader_epoch": -1, "offset": OFFSET_END},
    ],
)
def test_topic_partition_has_the_original_attributes(arguments: dict[str, Any]) -> None:
    ours, original = TopicPartition(**arguments), confluent_kafka.TopicPartition(**arguments)
    for name in ("topic", "partition", "offset", "metadata", "leader_epoch", "error"):
        assert getattr(ours, name) == getattr(original, name)
    assert repr(ours) == str(ours) == str(original)


def test_topic_partitions_are_compared_by_topic_and_partition() -> None:
    one, two = TopicPartition("a", 1, 5), TopicPartition("a", 1, 6)
    assert one == two
    assert hash(one) == hash(two)
    assert one != ("a", 1)
    three, other = TopicPartition("a", 3), TopicPartition("b", 0)
    assert sorted([other, three, one]) == [one, three, other]
    assert TopicPartition("a", 0) < one <= two
    again = pickle.loads(pickle.dumps(TopicPartition("t", 3, 7, "mine", 2)))
    assert str(again) == str(TopicPartition("t", 3, 7, "mine", 2))
    assert again.metadata == "mine"


def test_without_a_transactional_id_transactions_are_not_configured() -> None:
    original = confluent_kafka.TopicPartition("t", 0, 1)
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{free_port()}"})
    for call in (
        producer.init_transactions,
        producer.begin_transaction,
        partial(producer.send_offsets_to_transaction, [original], "g"),
        producer.commit_transaction,
        producer.abort_transaction,
    ):
        with pytest.raises(KafkaException) as caught:
            call()
        assert caught.value.args[0].name() == "_NOT_CONFIGURED"
    assert producer.close()


def consumer_metadata(**more: Any) -> Any:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "a group", "log_level": 0, **more}
    consumer = confluent_kafka.Consumer(settings)
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def test_group_member_reads_a_static_member() -> None:
    found = group_member(consumer_metadata(**{"group.instance.id": "one"}))
    assert found == GroupMetadata("a group", -1, "", "one")


def test_group_member_reads_a_generation() -> None:
    written = b"CGMDv2:" + (7).to_bytes(4, "little") + b"g\0member-1\0\x01"
    assert group_member(written) == GroupMetadata("g", 7, "member-1", None)


@pytest.mark.parametrize(
    "found", [b"", b"CGMDv3:\0\0\0\0g\0m\0\x01", b"CGMDv2:\0\0\0\0g\0m\0", b"CGMDv2:", b"group"]
)
def test_group_member_refuses_an_unknown_layout(found: bytes) -> None:
    with pytest.raises(RecordTypeError, match=r"kprod\.GroupMetadata"):
        group_member(found)
