"""A login as bytes: what brokers may say meanwhile, and what they may not."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kprod.errors import ConnectionLost, KprodError, ProtocolError, SaslAuthenticationError
from kprod.security.steps import Begun, InlineSteps, Mechanism, Steps
from kprod.sender.connection import MAX_FRAME_OF_STRANGERS, BrokerConnection
from kprod.sender.login import LEAST_PAUSE, MOST_ROUNDS, Login, LoginSettings
from kprod.wire.versions import ApiKey
from tests.support.kio_messages import response
from tests.support.scripted_cluster import OFFERED, api_keys
from tests.unit.sender.exchanges import NOW, SETTINGS, Noted, able, frame, write

SASL = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}


class Talks:
    """A mechanism that answers everything, for as long as the broker likes."""

    def respond(self, challenge: bytes | None) -> bytes | None:
        return None if challenge == b"done" else b"message"


class Rig:
    """A connection in the middle of its login, and the broker's part of it."""

    def __init__(self) -> None:
        mechanism = Mechanism("TALKS", lambda host: Talks())

        def start(host: str, wake: Callable[[], None]) -> Steps:
            return InlineSteps(Begun(mechanism, host))

        login = Login(LoginSettings("TALKS", start, lambda: 0.9), "host", lambda: None)
        self.connection = BrokerConnection(replace(SETTINGS, max_frame_bytes=100_000_000), login)
        self._number = 0
        self.connection.open(NOW)
        write(self.connection)
        offered = api_keys({**OFFERED, **SASL})
        self.answer(bytes(response(ApiKey.API_VERSIONS, 4, api_keys=offered)), tags=b"")

    def answer(self, body: bytes, now: float = NOW, tags: bytes = b"\x00") -> None:
        number = self._number.to_bytes(4, "big")
        self._number += 1
        self.connection.received(frame(number + tags + body), now)
        write(self.connection)

    def shake(self, now: float = NOW, **values: Any) -> None:
        told = {"mechanisms": ("TALKS",), **values}
        self.answer(bytes(response(ApiKey.SASL_HANDSHAKE, 1, **told)), now, b"")

    def go_on(self, now: float = NOW, **values: Any) -> None:
        told = {"error_message": None, "auth_bytes": b"done", **values}
        self.answer(bytes(response(ApiKey.SASL_AUTHENTICATE, 2, **told)), now)


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
def test_a_list_of_mechanisms_without_ours(mechanisms: tuple[str, ...]) -> None:
    rig = Rig()
    with pytest.raises(SaslAuthenticationError, match="does not offer") as raised:
        rig.shake(error_code=33, mechanisms=mechanisms)
    assert len(str(raised.value)) < 1200


@pytest.mark.parametrize("count", [-1, -(2**31), 10**6, 2**31 - 1])
def test_a_list_of_mechanisms_that_is_not_there(count: int) -> None:
    with pytest.raises(ProtocolError):
        Rig().answer(struct.pack(">hi", 0, count), tags=b"")


@pytest.mark.parametrize("code", [34, 58, -1, 999])
def test_the_first_message_is_refused(code: int) -> None:
    with pytest.raises(SaslAuthenticationError):
        Rig().answer(struct.pack(">hi", code, 0), tags=b"")


@pytest.mark.parametrize("code", [31, 34, 58, -1, 999])
def test_a_message_of_the_login_is_refused(code: int) -> None:
    rig = Rig()
    rig.shake()
    text = b"no\x1b[31m\nentry" * 200
    message = struct.pack(">hB", code, 0x80 | (len(text) + 1) & 0x7F) + bytes(
        [(len(text) + 1) >> 7]
    )
    with pytest.raises(SaslAuthenticationError, match="refused the login by TALKS") as raised:
        rig.answer(message + text + b"\x01" + bytes(8) + b"\x00")
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 3000


SIZES = [b"\x00\x80\x80\x80\x80\x08", b"\x00\xff\xff\xff\xff\x0f", b"\x00\x7f", b"\x00"]


@pytest.mark.parametrize("size", SIZES, ids=bytes.hex)
def test_bytes_of_the_login_that_are_not_there(size: bytes) -> None:
    rig = Rig()
    rig.shake()
    with pytest.raises(ProtocolError):
        rig.answer(b"\x00\x00" + size)


@pytest.mark.parametrize("size", [MAX_FRAME_OF_STRANGERS + 1, 100_000_000, 2**31 - 1, -1, 0])
@pytest.mark.parametrize("rounds", [0, 1])
def test_frames_that_are_too_large_before_the_login_is_over(rounds: int, size: int) -> None:
    """Refused by their size: none of it has to come, and no memory is taken for it."""
    rig = Rig()
    if rounds:
        rig.shake()
    with pytest.raises(ProtocolError, match="a frame of"):
        rig.connection.received(struct.pack(">i", size), NOW)


def test_frames_may_be_large_afterwards() -> None:
    rig = Rig()
    rig.shake()
    rig.go_on()
    rig.connection.received(struct.pack(">i", 2 * MAX_FRAME_OF_STRANGERS), NOW)


def test_a_login_without_an_end() -> None:
    rig = Rig()
    rig.shake()
    for _ in range(MOST_ROUNDS - 1):
        rig.go_on(auth_bytes=b"more")
    with pytest.raises(SaslAuthenticationError, match="no end of the login"):
        rig.go_on(auth_bytes=b"more")


def test_an_answer_nobody_asked_for() -> None:
    rig = Rig()
    rig.shake()
    rig.go_on()
    with pytest.raises(ProtocolError, match="a response to no request"):
        rig.go_on()


def test_requests_under_way_stay_so_when_the_login_is_repeated() -> None:
    """The broker answers in order: first those, then what the login asked (KIP-368)."""
    rig = Rig()
    rig.shake()
    rig.go_on(session_lifetime=10_000)
    sent = [Noted(), Noted()]
    for exchange in sent:
        rig.connection.send(exchange, NOW)
        write(rig.connection)
    assert rig.connection.next_change - NOW == pytest.approx(9)
    assert not able(rig.connection, NOW + 9)  # what is sent now might come after the end
    rig.connection.pass_time(NOW + 9)
    assert int.from_bytes(write(rig.connection)[4:6], "big") == ApiKey.SASL_HANDSHAKE
    rig.answer(b"one", NOW + 9)
    rig.answer(b"two", NOW + 9)
    assert [exchange.ends for exchange in sent] == [[("answered", b"one")], [("answered", b"two")]]
    rig.shake(NOW + 9)
    assert not able(rig.connection, NOW + 9)
    rig.go_on(NOW + 9, session_lifetime=10_000)
    assert able(rig.connection, NOW + 9)
    assert rig.connection.next_change - (NOW + 9) == pytest.approx(9)


def test_a_repeated_login_that_is_refused() -> None:
    rig = Rig()
    rig.shake()
    rig.go_on(session_lifetime=10_000)
    rig.connection.pass_time(NOW + 9)
    write(rig.connection)
    rig.shake(NOW + 9)
    with pytest.raises(SaslAuthenticationError):
        rig.go_on(NOW + 9, error_code=58, error_message="not any more")


def test_a_repeated_login_that_comes_too_soon_for_the_broker() -> None:
    """Nobody has refused who we are, nor is the port one without logins."""
    rig = Rig()
    rig.shake()
    rig.go_on(session_lifetime=10_000)
    rig.connection.pass_time(NOW + 9)
    write(rig.connection)
    with pytest.raises(ConnectionLost, match="no other login"):
        rig.shake(NOW + 9, error_code=34)


@pytest.mark.parametrize("seconds", [0.001, 0.05, 0.9])
def test_a_login_is_not_repeated_sooner_than_apache_kafka_takes_one(seconds: float) -> None:
    """Its clock begins before our handshake is answered. What is sent meanwhile it would refuse."""
    rig = Rig()
    rig.shake(NOW + 0.3)
    rig.go_on(NOW + 0.3, session_lifetime=round(seconds * 1000))
    assert able(rig.connection, NOW + 0.3)
    assert not able(rig.connection, NOW + 0.3 + seconds)
    assert rig.connection.next_change - (NOW + 0.3) == pytest.approx(LEAST_PAUSE)
    assert LEAST_PAUSE >= 1.0


@pytest.mark.parametrize("lifetime", [0, -1, -(2**62), 2**62])
def test_lifetimes_that_do_not_end(lifetime: int) -> None:
    rig = Rig()
    rig.shake()
    message = struct.pack(">hBB4sqB", 0, 0, 5, b"done", lifetime, 0)
    rig.answer(message)
    assert rig.connection.next_change - NOW > 10**9
    assert able(rig.connection, NOW)


def test_a_mistake_of_a_mechanism_is_told_by_its_type() -> None:
    def broken(host: str) -> Any:
        raise RuntimeError("canary")

    steps = InlineSteps(Begun(Mechanism("BROKEN", broken), "host"))
    steps.begin(None)
    with pytest.raises(KprodError, match="RuntimeError") as raised:
        steps.take()
    assert "canary" not in str(raised.value)
