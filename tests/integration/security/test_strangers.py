"""What the embedded broker takes from those who have not logged in: little, and no more."""

from __future__ import annotations

import socket
import struct

import pytest

from kprod import KafkaProducer
from tests.support.guarded_broker import GuardedBroker

MOST = 512 * 1024


def announced(address: str, size: int) -> socket.socket:
    """A connection on which a request of that size has been begun."""
    host, _, port = address.rpartition(":")
    client = socket.create_connection((host, int(port)), timeout=20)
    client.sendall(struct.pack(">ihh", size, 18, 0))
    return client


def has_ended(client: socket.socket) -> bool:
    """Whether the broker closes it; by a reset, if there was more for it to read."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("size", [MOST + 1, 2**31 - 1, -1, 0])
def test_requests_that_are_too_large(size: int, guarded: GuardedBroker) -> None:
    """Refused by their size, none of it has to come: no memory is taken for it."""
    with announced(guarded.address("plain", "PLAIN"), size) as client:
        assert has_ended(client)


def test_a_request_of_the_largest_size_is_read(guarded: GuardedBroker) -> None:
    """All of it, and then it is answered: it asks for the versions, whatever comes with that."""
    with announced(guarded.address("plain", "PLAIN"), MOST) as client:
        client.sendall(bytes(MOST - 5))
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(20)
        client.sendall(b"\0")
        assert client.recv(1)


def test_more_is_taken_after_the_login(guarded: GuardedBroker) -> None:
    options = guarded.options("plain", "PLAIN")
    with KafkaProducer(max_request_size=2 * MOST, **options) as producer:
        producer.send("t", bytes(MOST + 100_000)).get(timeout=20)


@pytest.mark.parametrize("api", [0, 1, 3, 19, 22])
def test_requests_before_the_login(api: int, guarded: GuardedBroker) -> None:
    """Produce, Fetch, Metadata, CreateTopics, InitProducerId."""
    host, _, port = guarded.address("plain", "PLAIN").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(struct.pack(">ihhih", 10, api, 3, 1, -1))
        assert has_ended(client)
