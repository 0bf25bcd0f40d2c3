"""Messages as confluent-kafka has them."""

from __future__ import annotations

import pickle

import confluent_kafka
import pytest

from kprod.confluent import Message, consistent, fnv1a, murmur2, version

ARGUMENTS = ("t", 1, 2, b"k", b"value", [("h", b"x")], None, (1, 4), 5.5, 3, 6)


def test_a_message_tells_what_it_was_made_of() -> None:
    message = Message(*ARGUMENTS)
    told = (message.topic(), message.partition(), message.offset(), message.key(), message.value())
    assert told == ARGUMENTS[:5]
    rest = (message.headers(), message.error(), message.timestamp(), message.latency())
    assert (*rest, message.leader_epoch(), message.delivery_count()) == ARGUMENTS[5:]
    assert len(message) == 5
    assert (message.deserialized_key(), message.deserialized_value()) == ARGUMENTS[3:5]


def test_every_call_of_their_message_is_one_of_ours() -> None:
    names = {name for name in vars(confluent_kafka.Message) if not name.startswith("_")}
    assert names <= set(dir(Message))


def test_what_is_not_known_is_none() -> None:
    message = Message()
    assert message.partition() is message.offset() is message.latency() is None
    assert message.leader_epoch() is message.delivery_count() is message.topic() is None
    assert message.timestamp() == (0, 0)
    assert len(message) == 0
    assert bool(message)


def test_messages_are_compared_and_pickled_by_what_they_hold() -> None:
    message = Message(*ARGUMENTS)
    assert message == pickle.loads(pickle.dumps(message)) == Message(*ARGUMENTS)
    assert message != Message()
    assert message != 1
    with pytest.raises(TypeError):
        hash(message)
    with pytest.raises(OverflowError):
        Message(delivery_count=2**15)


def test_keys_go_where_the_partitioners_put_them() -> None:
    for key in (b"a", b"key", bytes(range(200))):
        for function in (murmur2, consistent, fnv1a):
            theirs = getattr(confluent_kafka, function.__name__)
            assert function(key, 7) == theirs(key, 7)
    with pytest.raises(ValueError, match="partition_count must be > 0"):
        murmur2(b"k", 0)
    with pytest.raises(TypeError):
        murmur2("k", 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        murmur2(b"k", "1")  # type: ignore[arg-type]
    assert version()
