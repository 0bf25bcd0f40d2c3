"""A broker whose broker asks for logins again and again, and one whose login takes its time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

from kprod.security.steps import Begun, InlineSteps, Mechanism, Message, Steps
from kprod.sender.login import LoginSettings
from kprod.transport.memory import ServerEnd
from kprod.wire.framing import FrameReader
from kprod.wire.versions import ApiKey
from tests.support.kio_messages import response
from tests.support.scripted_cluster import OFFERED, api_keys
from tests.unit.sender.broker_rig import SETTINGS, BrokerRig
from tests.unit.sender.exchanges import frame

LIFETIME_MS = 10_000
SASL = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}


class LoginServer:
    """Lets everybody in, for ten seconds. ``logins`` counts them."""

    def __init__(self) -> None:
        self.logins = 0

    def accept(self) -> ServerEnd:
        return LoginEnd(self)


class LoginEnd(ServerEnd):
    def __init__(self, server: LoginServer) -> None:
        self._server = server
        self._reader = FrameReader()

    def receive(self, data: bytes) -> bytes:
        return b"".join(self._answer(bytes(request)) for request in self._reader.feed(data))

    def _answer(self, request: bytes) -> bytes:
        api, number = int.from_bytes(request[:2], "big"), request[4:8]
        if api == ApiKey.API_VERSIONS:
            hello = response(api, 4, api_keys=api_keys({**OFFERED, **SASL}))
            return frame(number + bytes(hello))
        if api == ApiKey.SASL_HANDSHAKE:
            return frame(number + struct.pack(">hi", 0, 0))
        self._server.logins += 1
        return frame(number + b"\x00" + struct.pack(">hBBqB", 0, 0, 1, LIFETIME_MS, 0))


class Once:
    def respond(self, challenge: bytes | None) -> bytes | None:
        return b"it is me" if challenge is None else None


def at_once(wake: Callable[[], None]) -> Steps:
    return InlineSteps(Begun(Mechanism("ONCE", lambda host: Once()), "host"))


class NeverReady:
    """A provider that does not answer."""

    def begin(self, challenge: bytes | None) -> None:
        """Nothing comes of it."""

    def take(self) -> Message | None:
        return None


def rig_with(start: Callable[[Callable[[], None]], Steps], server: LoginServer) -> BrokerRig:
    login = LoginSettings("ONCE", start, lambda: 0.9)
    return BrokerRig(server, settings=replace(SETTINGS, login=lambda host: login))


def test_logins_do_not_keep_a_connection_that_nobody_uses() -> None:
    """Else none would end where logins are repeated more often than what is idle is closed."""
    server = LoginServer()
    rig = rig_with(at_once, server)
    began = rig.clock.now
    rig.connect()
    while rig.broker.connected:
        rig.pass_time(rig.next_event())
        for _ in range(10):
            rig.poll()
    assert rig.clock.now == began + SETTINGS.idle_timeout
    assert server.logins >= SETTINGS.idle_timeout // 9
    assert rig.errors == []


def test_requests_of_logins_are_counted_as_their_answers_are() -> None:
    rig = rig_with(at_once, LoginServer())
    rig.connect()
    traffic = rig.metrics.node(7)
    assert (traffic.requests, traffic.responses) == (3, 3)  # versions, mechanism, login
    rig.pass_time(rig.next_event())
    for _ in range(10):
        rig.poll()
    assert (traffic.requests, traffic.responses) == (5, 5)


def test_a_login_that_is_not_worked_out_is_told_as_such() -> None:
    rig = rig_with(lambda wake: NeverReady(), LoginServer())
    rig.broker.connect(rig.clock.now)
    for _ in range(10):
        rig.poll()
    rig.pass_time(10)
    assert not rig.broker.connected
    assert "what logs us in was not ready within 10 s of connecting" in str(rig.errors[0])
