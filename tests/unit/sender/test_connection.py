"""One connection as bytes: handshake, login, requests and responses."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kprod.errors import (
    ConnectionLost,
    KprodError,
    ProtocolError,
    SaslAuthenticationError,
    UnsupportedVersionError,
)
from kprod.security.steps import Begun, InlineSteps, Mechanism, Steps
from kprod.sender.connection import MAX_FRAME_OF_STRANGERS, BrokerConnection
from kprod.sender.login import LEAST_PAUSE, MOST_ROUNDS, Login, LoginSettings
from kprod.wire.versions import ApiKey
from tests.support.kio_messages import response
from tests.support.scripted_cluster import OFFERED, api_keys
from tests.unit.sender.exchanges import (
    NOW,
    SASL,
    SETTINGS,
    RecordedExchange,
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


def send(connection: BrokerConnection, *exchanges: RecordedExchange) -> None:
    """Send and write each of them."""
    for exchange in exchanges:
        connection.send(exchange, NOW)
        write(connection)


def test_a_response_to_an_unsent_request_is_refused() -> None:
    connection = established()
    request = RecordedExchange()
    connection.send(request, NOW)
    connection.wrote(3, NOW)
    with pytest.raises(ProtocolError, match="not fully sent"):
        connection.received(answer(1, b"?"), NOW)
    connection.close(GONE, NOW)
    assert request.ends == [("failed", False)]


@pytest.mark.parametrize("answered", [0, 2, 7], ids=["an earlier", "a later", "none"])
def test_a_response_out_of_order_is_refused(answered: int) -> None:
    connection = established()
    oldest, later = RecordedExchange(), RecordedExchange()
    send(connection, oldest, later)
    with pytest.raises(ProtocolError, match="1 is the oldest"):
        connection.received(answer(answered, b"?"), NOW)
    connection.close(GONE, NOW)
    assert oldest.ends == later.ends == [("failed", True)]


def test_a_request_with_an_unreadable_response_fails_when_the_connection_closes() -> None:
    connection = established()
    request = RecordedExchange(refuses=True)
    send(connection, request)
    with pytest.raises(ProtocolError):
        connection.received(answer(1, b"?"), NOW)
    assert request.ends == []
    connection.close(GONE, NOW)
    assert request.ends == [("failed", True)]


def test_requests_offered_to_a_transport_fail_as_possibly_sent() -> None:
    connection = established()
    offered, queued = RecordedExchange(), RecordedExchange()
    connection.send(offered, NOW)
    connection.offered()
    connection.send(queued, NOW)
    connection.close(GONE, NOW)
    assert [request.ends for request in (offered, queued)] == [
        [("failed", True)],
        [("failed", False)],
    ]


class ClosesConnection(RecordedExchange):
    """Its answer closes the connection, as a new list of brokers may."""

    def __init__(self, connection: BrokerConnection) -> None:
        super().__init__()
        self._connection = connection

    def answered(self, version: int, body: memoryview, now: float) -> int:
        throttle = super().answered(version, body, now)
        self._connection.close(GONE, now)
        return throttle


def test_a_request_whose_answer_closes_the_connection_ends_once() -> None:
    connection = established()
    first, second = ClosesConnection(connection), RecordedExchange()
    send(connection, first, second)
    connection.received(answer(1, b"one") + answer(2, b"two"), NOW)
    assert first.ends == [("answered", b"one")]
    assert second.ends == [("failed", True)]


def test_no_request_is_sent_behind_a_partly_written_one() -> None:
    connection = established()
    connection.send(RecordedExchange(b"request"), NOW)
    connection.wrote(6, NOW)
    assert not able(connection, NOW)
    connection.wrote(1, NOW)
    assert able(connection, NOW)


def test_buffers_of_a_request_are_written_without_a_copy() -> None:
    connection = established()
    records = b"record batch"
    connection.send(RecordedExchange(b"header", records), NOW)
    assert connection.pending_output()[1] is records


@pytest.mark.parametrize(
    ("throttle_ms", "seconds"), [(0, 0.0), (-1, 0.0), (5_000, 5.0), (2**31 - 1, 300.0)]
)
def test_a_throttled_connection_sends_nothing(throttle_ms: int, seconds: float) -> None:
    connection = established()
    send(connection, RecordedExchange(throttle_ms=throttle_ms))
    connection.received(answer(1, b""), NOW)
    assert connection.throttled_for(NOW) == seconds
    assert able(connection, NOW) == (seconds == 0.0)
    assert able(connection, NOW + seconds)


def test_the_throttle_time_of_an_old_broker_is_ignored() -> None:
    connection = established()
    asked = RecordedExchange(throttle_ms=5_000, version_cap=5)
    send(connection, asked)
    connection.received(frame(b"\x00\x00\x00\x01"), NOW)
    assert (asked.versions, asked.ends) == ([5], [("answered", b"")])
    assert able(connection, NOW)


def test_the_waiting_time_is_that_of_the_oldest_request() -> None:
    connection = established()
    assert connection.waiting_since() is None
    connection.send(RecordedExchange(b"request"), NOW)
    assert connection.waiting_since() == NOW
    connection.wrote(3, NOW + 2)
    assert connection.waiting_since() == NOW + 2
    connection.wrote(4, NOW + 3)
    connection.send(RecordedExchange(), NOW + 5)
    assert connection.waiting_since() == NOW + 3


def test_the_throttle_time_does_not_count_as_waiting_time() -> None:
    connection = established()
    send(connection, RecordedExchange(throttle_ms=5_000), RecordedExchange())
    connection.received(answer(1, b""), NOW + 1)
    assert connection.waiting_since() == NOW + 6


# Negotiation of versions --------------------------------------------------------------------------


def api_and_version(request: bytes) -> tuple[int, int]:
    return int.from_bytes(request[4:6], "big"), int.from_bytes(request[6:8], "big")


def fallback(correlation_id: int, ranges: bytes) -> bytes:
    """Error 35 in the layout of version 0, for a version that the broker does not know."""
    return frame(correlation_id.to_bytes(4, "big") + b"\x00\x23" + ranges)


def offered(first: int, last: int) -> bytes:
    """An array that holds the range of ApiVersions."""
    numbers = (ApiKey.API_VERSIONS, first, last)
    return b"\x00\x00\x00\x01" + b"".join(n.to_bytes(2, "big", signed=True) for n in numbers)


def test_nothing_can_be_sent_before_the_handshake_is_over() -> None:
    connection = opened()
    assert not able(connection, NOW)
    with pytest.raises(UnsupportedVersionError):
        connection.send(RecordedExchange(), NOW)
    assert len(connection.unanswered) == 1


@pytest.mark.parametrize(
    ("ranges", "version"),
    [
        pytest.param(offered(0, 3), 3, id="its highest"),
        pytest.param(offered(0, 0), 0, id="its only one"),
        pytest.param(b"", 0, id="nothing"),
        pytest.param(b"\x00\x00\x00\x00", 0, id="no ranges"),
        pytest.param(b"\x12", 0, id="malformed, as the mock broker of librdkafka"),
        pytest.param(offered(0, -5), 0, id="a negative version"),
    ],
)
def test_api_versions_is_repeated_with_the_named_version_or_0(ranges: bytes, version: int) -> None:
    connection = opened()
    write(connection)
    connection.received(fallback(0, ranges), NOW)
    assert not connection.established
    assert api_and_version(write(connection)) == (ApiKey.API_VERSIONS, version)
    connection.received(handshake_answer(1, version), NOW)
    assert connection.established


def test_a_broker_that_refuses_every_version_of_api_versions_is_an_error() -> None:
    connection = opened()
    for correlation_id in range(4):
        assert api_and_version(write(connection)) == (ApiKey.API_VERSIONS, 4 - correlation_id)
        connection.received(fallback(correlation_id, offered(0, 4)), NOW)
    write(connection)
    with pytest.raises(ProtocolError, match="UNSUPPORTED_VERSION"):
        connection.received(fallback(4, offered(0, 4)), NOW)


# Logins -------------------------------------------------------------------------------------------


class Chatty:
    """A mechanism that answers every challenge until ``done``."""

    def respond(self, challenge: bytes | None) -> bytes | None:
        return None if challenge == b"done" else b"message"


class Rig:
    """A connection during its login, after ``rounds`` responses, and the broker's side."""

    def __init__(self, rounds: int = 0) -> None:
        mechanism = Mechanism("TALKS", lambda host: Chatty())

        def start(host: str, wake: Callable[[], None]) -> Steps:
            return InlineSteps(Begun(mechanism, host))

        login = Login(LoginSettings("TALKS", start, lambda: 0.9), "host", lambda: None)
        self.connection = BrokerConnection(replace(SETTINGS, max_frame_bytes=100_000_000), login)
        self._number = 0
        self.connection.open(NOW)
        write(self.connection)
        offered = api_keys({**OFFERED, **SASL})
        self.answer(bytes(response(ApiKey.API_VERSIONS, 4, api_keys=offered)), tags=b"")
        if rounds:
            self.shake()

    def answer(self, body: bytes, now: float = NOW, tags: bytes = b"\x00") -> None:
        number = self._number.to_bytes(4, "big")
        self._number += 1
        self.connection.received(frame(number + tags + body), now)
        write(self.connection)

    def shake(self, now: float = NOW, **values: Any) -> None:
        fields = {"mechanisms": ("TALKS",), **values}
        self.answer(bytes(response(ApiKey.SASL_HANDSHAKE, 1, **fields)), now, b"")

    def go_on(self, now: float = NOW, **values: Any) -> None:
        fields = {"error_message": None, "auth_bytes": b"done", **values}
        self.answer(bytes(response(ApiKey.SASL_AUTHENTICATE, 2, **fields)), now)

    @classmethod
    def logged_in(cls) -> Rig:
        """For ten seconds."""
        rig = cls(rounds=1)
        rig.go_on(session_lifetime=10_000)
        return rig

    def log_in_again(self) -> None:
        """Nine seconds later."""
        self.connection.pass_time(NOW + 9)
        assert int.from_bytes(write(self.connection)[4:6], "big") == ApiKey.SASL_HANDSHAKE


def test_nothing_is_sent_before_the_login_is_over() -> None:
    rig = Rig()
    assert not able(rig.connection, NOW)
    rig.shake()
    assert not able(rig.connection, NOW)
    rig.go_on(auth_bytes=b"more")
    assert rig.connection.logs_in
    assert not able(rig.connection, NOW)
    rig.go_on()
    assert rig.connection.established
    assert able(rig.connection, NOW)


@pytest.mark.parametrize("mechanisms", [(), ("PLAIN",), tuple(f"M{n}" for n in range(5000))])
def test_the_error_for_an_unsupported_mechanism_is_short(mechanisms: tuple[str, ...]) -> None:
    rig = Rig()
    with pytest.raises(SaslAuthenticationError, match="does not offer") as raised:
        rig.shake(error_code=33, mechanisms=mechanisms)
    assert len(str(raised.value)) < 1200


COUNTS = [-1, -(2**31), 10**6, 2**31 - 1]
SIZES = [b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\x0f", b"\x7f", b""]
IMPOSSIBLE_SIZES = [
    *((0, struct.pack(">hi", 0, count)) for count in COUNTS),
    *((1, b"\x00" + bytes(3) + size) for size in SIZES),
]


@pytest.mark.parametrize(("rounds", "body"), IMPOSSIBLE_SIZES)
def test_impossible_sizes_in_login_responses_are_refused(rounds: int, body: bytes) -> None:
    rig = Rig(rounds)
    with pytest.raises(ProtocolError):
        rig.answer(body, tags=b"")


@pytest.mark.parametrize("code", [34, 58, -1, 999])
def test_an_error_code_for_the_sasl_handshake_fails_the_login(code: int) -> None:
    with pytest.raises(SaslAuthenticationError):
        Rig().answer(struct.pack(">hi", code, 0), tags=b"")


@pytest.mark.parametrize("code", [31, 34, 58, -1, 999])
def test_an_error_code_during_the_login_fails_it_with_a_printable_message(code: int) -> None:
    rig = Rig(rounds=1)
    text = b"no\x1b[31m\nentry" * 200
    message = struct.pack(">hB", code, 0x80 | (len(text) + 1) & 0x7F) + bytes(
        [(len(text) + 1) >> 7]
    )
    with pytest.raises(SaslAuthenticationError, match="refused the login by TALKS") as raised:
        rig.answer(message + text + b"\x01" + bytes(8) + b"\x00")
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 3000


@pytest.mark.parametrize("size", [MAX_FRAME_OF_STRANGERS + 1, 100_000_000, 2**31 - 1, -1, 0])
@pytest.mark.parametrize("rounds", [0, 1])
def test_large_frames_before_the_end_of_the_login_are_refused(rounds: int, size: int) -> None:
    """By their size alone, before any of their bytes."""
    with pytest.raises(ProtocolError, match="a frame of"):
        Rig(rounds).connection.received(struct.pack(">i", size), NOW)


def test_a_login_with_too_many_messages_fails() -> None:
    rig = Rig(rounds=1)
    for _ in range(MOST_ROUNDS - 1):
        rig.go_on(auth_bytes=b"more")
    with pytest.raises(SaslAuthenticationError, match="no end of the login"):
        rig.go_on(auth_bytes=b"more")


def test_a_response_without_a_request_is_refused() -> None:
    with pytest.raises(ProtocolError, match="a response to no request"):
        Rig.logged_in().go_on()


def test_requests_in_flight_are_answered_when_the_login_is_repeated() -> None:
    """The broker answers in order: first those, then the login (KIP-368)."""
    rig = Rig.logged_in()
    sent = [RecordedExchange(), RecordedExchange()]
    send(rig.connection, *sent)
    assert rig.connection.next_change - NOW == pytest.approx(9)
    assert not able(rig.connection, NOW + 9)  # it might arrive after the session has expired
    rig.log_in_again()
    rig.answer(b"one", NOW + 9)
    rig.answer(b"two", NOW + 9)
    assert [exchange.ends for exchange in sent] == [[("answered", b"one")], [("answered", b"two")]]
    rig.shake(NOW + 9)
    assert not able(rig.connection, NOW + 9)
    rig.go_on(NOW + 9, session_lifetime=10_000)
    assert able(rig.connection, NOW + 9)
    assert rig.connection.next_change - (NOW + 9) == pytest.approx(9)


def test_the_wait_for_a_repeated_login_begins_after_the_throttle_time() -> None:
    rig = Rig.logged_in()
    send(rig.connection, RecordedExchange(throttle_ms=60_000))
    rig.answer(b"", NOW)
    rig.log_in_again()
    assert rig.connection.waiting_since() == NOW + 60


def test_a_refused_repeated_login_is_an_authentication_error() -> None:
    rig = Rig.logged_in()
    rig.log_in_again()
    rig.shake(NOW + 9)
    with pytest.raises(SaslAuthenticationError):
        rig.go_on(NOW + 9, error_code=58, error_message="not any more")


def test_a_repeated_login_refused_as_too_early_is_a_lost_connection() -> None:
    """The credentials were not refused, nor is the port one without logins."""
    rig = Rig.logged_in()
    rig.log_in_again()
    with pytest.raises(ConnectionLost, match="no other login"):
        rig.shake(NOW + 9, error_code=34)


@pytest.mark.parametrize("seconds", [0.001, 0.05, 0.9])
def test_a_login_is_not_repeated_within_the_minimum_of_apache_kafka(seconds: float) -> None:
    """Its clock starts before the handshake is answered; it refuses requests sent meanwhile."""
    rig = Rig()
    rig.shake(NOW + 0.3)
    rig.go_on(NOW + 0.3, session_lifetime=round(seconds * 1000))
    assert able(rig.connection, NOW + 0.3)
    assert not able(rig.connection, NOW + 0.3 + seconds)
    assert rig.connection.next_change - (NOW + 0.3) == pytest.approx(LEAST_PAUSE)
    assert LEAST_PAUSE >= 1.0


@pytest.mark.parametrize("lifetime", [0, -1, -(2**62), 2**62])
def test_sessions_with_impossible_lifetimes_do_not_expire(lifetime: int) -> None:
    rig = Rig(rounds=1)
    message = struct.pack(">hBB4sqB", 0, 0, 5, b"done", lifetime, 0)
    rig.answer(message)
    assert rig.connection.next_change - NOW > 10**9
    assert able(rig.connection, NOW)


def test_the_error_for_a_failing_mechanism_names_only_the_type() -> None:
    def broken(host: str) -> Any:
        raise RuntimeError("canary")

    steps = InlineSteps(Begun(Mechanism("BROKEN", broken), "host"))
    steps.begin(None)
    with pytest.raises(KprodError, match="RuntimeError") as raised:
        steps.take()
    assert "canary" not in str(raised.value)
