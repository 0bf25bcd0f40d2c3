"""A broker whose broker asks for logins again and again, and one whose login takes its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kprod.security.steps import Begun, InlineSteps, Mechanism, Message, Steps
from kprod.sender.login import LoginSettings
from kprod.wire.versions import ApiKey
from tests.support.scripted_cluster import ScriptedBroker, ScriptedCluster, telling
from tests.unit.sender.broker_rig import BrokerRig
from tests.unit.sender.exchanges import SETTINGS

LIFETIME_MS = 10_000
SASL = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}


def login_server() -> ScriptedBroker:
    """Lets everybody in, for ten seconds."""
    server = ScriptedCluster().add(7, "host")
    server.offered |= SASL
    server.next(ApiKey.SASL_HANDSHAKE, *[telling(mechanisms=("ONCE",))] * 100)
    welcome = telling(error_message=None, session_lifetime=LIFETIME_MS)
    server.next(ApiKey.SASL_AUTHENTICATE, *[welcome] * 100)
    return server


class Once:
    def respond(self, challenge: bytes | None) -> bytes | None:
        return b"it is me" if challenge is None else None


def at_once(host: str, wake: Callable[[], None]) -> Steps:
    return InlineSteps(Begun(Mechanism("ONCE", lambda host: Once()), "host"))


class NeverReady:
    """A provider that does not answer."""

    def begin(self, challenge: bytes | None) -> None:
        """Nothing comes of it."""

    def take(self) -> Message | None:
        return None


def rig_with(
    start: Callable[[str, Callable[[], None]], Steps], server: ScriptedBroker
) -> BrokerRig:
    login = LoginSettings("ONCE", start, lambda: 0.9)
    return BrokerRig(server, settings=replace(SETTINGS, login=login))


def test_logins_do_not_keep_a_connection_that_nobody_uses() -> None:
    """Else none would end where logins are repeated more often than what is idle is closed."""
    server = login_server()
    rig = rig_with(at_once, server)
    began = rig.clock.now
    rig.connect()
    while rig.broker.connected:
        rig.pass_time(rig.next_event())
        for _ in range(10):
            rig.poll()
    assert rig.clock.now == began + SETTINGS.idle_timeout
    assert server.count(ApiKey.SASL_AUTHENTICATE) >= SETTINGS.idle_timeout // 9
    assert rig.errors == []


def test_requests_of_logins_are_counted_as_their_answers_are() -> None:
    rig = rig_with(at_once, login_server())
    rig.connect()
    traffic = rig.metrics.node(7)
    assert (traffic.requests, traffic.responses) == (3, 3)  # versions, mechanism, login
    rig.pass_time(rig.next_event())
    for _ in range(10):
        rig.poll()
    assert (traffic.requests, traffic.responses) == (5, 5)


def test_a_login_that_is_not_worked_out_is_told_as_such() -> None:
    rig = rig_with(lambda host, wake: NeverReady(), login_server())
    rig.broker.connect(rig.clock.now)
    for _ in range(10):
        rig.poll()
    rig.pass_time(10)
    assert not rig.broker.connected
    assert "what logs us in was not ready within 10 s of connecting" in str(rig.errors[0])
