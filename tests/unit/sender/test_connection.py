"""Requests leave in order, responses are matched in order, and nothing ends twice."""

from __future__ import annotations

import pytest

from kprod.errors import ConnectionLost, ProtocolError
from kprod.sender.connection import BrokerConnection
from tests.unit.sender.exchanges import (
    NOW,
    Noted,
    able,
    answer,
    frame,
    handshake_answer,
    opened,
    write,
)

GONE = ConnectionLost("gone")


def established(max_in_flight: int = 5) -> BrokerConnection:
    """A connection after its handshake, which had correlation id 0."""
    connection = opened(max_in_flight)
    write(connection)
    connection.received(handshake_answer(0), NOW)
    return connection


def send(connection: BrokerConnection, *exchanges: Noted) -> None:
    """Hand over and write each in turn."""
    for exchange in exchanges:
        connection.send(exchange, NOW)
        write(connection)


# Matching -----------------------------------------------------------------------------------------


def test_a_response_to_a_request_that_has_not_left_is_refused() -> None:
    connection = established()
    request = Noted()
    connection.send(request, NOW)
    connection.wrote(3, NOW)
    with pytest.raises(ProtocolError, match="not fully sent"):
        connection.received(answer(1, b"?"), NOW)
    connection.close(GONE, NOW)
    assert request.ends == [("failed", False)]


@pytest.mark.parametrize("answered", [0, 2, 7], ids=["an earlier", "a later", "none"])
def test_an_answer_to_another_request_than_the_oldest_is_refused(answered: int) -> None:
    connection = established()
    oldest, later = Noted(), Noted()
    send(connection, oldest, later)
    with pytest.raises(ProtocolError, match="1 is the oldest"):
        connection.received(answer(answered, b"?"), NOW)
    connection.close(GONE, NOW)
    assert oldest.ends == later.ends == [("failed", True)]


def test_a_response_that_cannot_be_read_leaves_the_request_to_be_failed() -> None:
    connection = established()
    request = Noted(refuses=True)
    send(connection, request)
    with pytest.raises(ProtocolError):
        connection.received(answer(1, b"?"), NOW)
    assert request.ends == []
    connection.close(GONE, NOW)
    assert request.ends == [("failed", True)]


def test_what_a_transport_was_offered_may_have_arrived_unless_it_counts_every_byte() -> None:
    connection = established()
    offered, queued = Noted(), Noted()
    connection.send(offered, NOW)
    connection.offered()
    connection.send(queued, NOW)
    connection.close(GONE, NOW)
    assert [request.ends for request in (offered, queued)] == [
        [("failed", True)],
        [("failed", False)],
    ]


class ClosesConnection(Noted):
    """Its answer makes its owner close the connection, as a new broker list may."""

    def __init__(self, connection: BrokerConnection) -> None:
        super().__init__()
        self._connection = connection

    def answered(self, version: int, body: memoryview, now: float) -> int:
        throttle = super().answered(version, body, now)
        self._connection.close(GONE, now)
        return throttle


def test_a_request_whose_answer_closes_the_connection_ends_once() -> None:
    connection = established()
    first, second = ClosesConnection(connection), Noted()
    send(connection, first, second)
    connection.received(answer(1, b"one") + answer(2, b"two"), NOW)
    assert first.ends == [("answered", b"one")]
    assert second.ends == [("failed", True)]


# Writing ------------------------------------------------------------------------------------------


def test_nothing_is_sent_behind_a_request_that_has_not_left() -> None:
    connection = established()
    connection.send(Noted(b"request"), NOW)
    connection.wrote(6, NOW)
    assert not able(connection, NOW)
    connection.wrote(1, NOW)
    assert able(connection, NOW)


def test_the_buffers_of_a_request_are_written_as_they_are() -> None:
    connection = established()
    records = b"record batch"
    connection.send(Noted(b"header", records), NOW)
    assert connection.pending_output()[1] is records


# Throttling, age and the end ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("throttle_ms", "seconds"), [(0, 0.0), (-1, 0.0), (5_000, 5.0), (2**31 - 1, 300.0)]
)
def test_a_throttled_connection_is_silent_for_as_long(throttle_ms: int, seconds: float) -> None:
    connection = established()
    send(connection, Noted(throttle_ms=throttle_ms))
    connection.received(answer(1, b""), NOW)
    assert connection.throttled_for(NOW) == seconds
    assert able(connection, NOW) == (seconds == 0.0)
    assert able(connection, NOW + seconds)


def test_an_old_broker_has_held_back_the_answer_and_wants_no_silence() -> None:
    connection = established()
    asked = Noted(throttle_ms=5_000, version_cap=5)
    send(connection, asked)
    connection.received(frame(b"\x00\x00\x00\x01"), NOW)
    assert (asked.versions, asked.ends) == ([5], [("answered", b"")])
    assert able(connection, NOW)


def test_the_oldest_request_tells_how_long_the_broker_has_been_silent() -> None:
    connection = established()
    assert connection.waiting_since() is None
    connection.send(Noted(b"request"), NOW)
    assert connection.waiting_since() == NOW
    connection.wrote(3, NOW + 2)
    assert connection.waiting_since() == NOW + 2
    connection.wrote(4, NOW + 3)
    connection.send(Noted(), NOW + 5)
    assert connection.waiting_since() == NOW + 3


def test_a_silence_the_broker_asked_for_is_not_held_against_it() -> None:
    connection = established()
    send(connection, Noted(throttle_ms=5_000), Noted())
    connection.received(answer(1, b""), NOW + 1)
    assert connection.waiting_since() == NOW + 6
