"""Expiring and interrupted logins, and replaced certificates and passwords.

``KPROD_CAMPAIGN=long`` interrupts a login at every byte, otherwise at every 23rd.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.broker import ApiKey, Authentication, EmbeddedBroker, Fault, make_listener
from kprod.clock import SystemClock
from kprod.errors import KprodTimeoutError, SaslAuthenticationError
from kprod.security import FromEnvironment, FromFile
from tests.fault.loopback_resolver import LoopbackResolver
from tests.support.certificates import Certificates
from tests.support.committed_records import read_back
from tests.support.frame_proxy import FrameProxy, Spoil
from tests.support.guarded_broker import PASSWORD, USER, GuardedBroker, guarded_broker
from tests.support.tier import CAMPAIGN, one_of

SECONDS = 60.0 if CAMPAIGN else 4.0


@pytest.mark.parametrize("mechanism", one_of("OAUTHBEARER", "PLAIN", "SCRAM-SHA-256"))
def test_logins_are_repeated_under_load(mechanism: str, tmp_path: Path) -> None:
    """Every second. Twice, both sides get new certificates and the connection breaks."""
    clock = SystemClock()
    with guarded_broker(Certificates(tmp_path), {"t": 3}, lifetime=1.0) as guarded:
        options = guarded.options("mtls", mechanism)
        futures: list[Any] = []
        began = clock.monotonic()
        with KafkaProducer(linger_ms=1, reconnect_backoff_ms=1, **options) as producer:
            replaced = 0
            while (passed := clock.monotonic() - began) < SECONDS:
                futures += [
                    producer.send("t", b"%d" % (len(futures) + n), partition=0) for n in range(50)
                ]
                if passed > SECONDS * (replaced + 1) / 3 and replaced < 2:
                    guarded.renew()
                    guarded.broker.faults.add(Fault(api=ApiKey.PRODUCE, cut_at=0))
                    replaced += 1
                futures[-1].get(timeout=20)
            connections = producer.metrics()["producer-metrics"]["connection-creation-total"]
        assert replaced == 2
        assert [future.get().offset for future in futures] == list(range(len(futures)))
        stored = read_back(guarded.address("plain", "none"), "t", 3)
        assert [record.value for record in stored] == [b"%d" % n for n in range(len(futures))]
        # One, and one more after each break. On a stalled machine a login may be late; the broker
        # then closes that connection too, and nothing is lost.
        assert connections >= 3


def login_of(users: dict[str, str]) -> Authentication:
    return Authentication(users, ("SCRAM-SHA-256",))


def test_a_changed_password_is_used_for_the_next_connection(tmp_path: Path) -> None:
    users, file = {USER: "old"}, tmp_path / "password"
    file.write_text("old\n")
    listener = make_listener("SASL", authentication=login_of(users))
    with EmbeddedBroker(listeners=[listener], topics={"t": 1}) as broker:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username=USER,
            sasl_plain_password=FromFile(file),
            reconnect_backoff_ms=1,
        )
        with producer:
            producer.send("t", b"x").get(timeout=20)
            users[USER] = "new"
            broker.stop()
            pending = producer.send("t", b"y")
            broker.start()
            file.write_text("new\n")
            pending.get(timeout=30)


def test_credentials_from_a_provider_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_ALICE", PASSWORD)
    listener = make_listener("SASL", authentication=login_of({USER: PASSWORD}))
    with EmbeddedBroker(listeners=[listener], topics={"t": 1}) as broker:
        options: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
        }
        both: dict[str, Any] = {"sasl_credentials": lambda: (USER, PASSWORD)}
        separate: dict[str, Any] = {
            "sasl_plain_username": USER,
            "sasl_plain_password": FromEnvironment("SECRET_OF_ALICE"),
        }
        for login in (both, separate):
            with KafkaProducer(**options, **login) as producer:
                producer.send("t", b"x").get(timeout=20)
        invalid: dict[str, Any] = {"sasl_credentials": lambda: PASSWORD}
        with (
            KafkaProducer(**options, **invalid) as producer,
            pytest.raises(SaslAuthenticationError, match="did not return"),
        ):
            producer.send("t", b"x")


def test_a_slow_token_provider_does_not_block_send_or_close(certificates: Certificates) -> None:
    """The sender and ``close`` continue while a token is fetched."""
    called, released = threading.Event(), threading.Event()

    def token() -> str:
        called.set()
        released.wait(30)
        return "token"

    with guarded_broker(certificates, {"t": 1}) as guarded:
        options = {**guarded.options("tls", "OAUTHBEARER"), "sasl_oauth_token_provider": token}
        producer = KafkaProducer(max_block_ms=0, **options)
        closer = threading.Thread(target=lambda: producer.close(0.1))
        try:
            with pytest.raises(KprodTimeoutError, match="no metadata"):
                producer.send("t", b"x")
            assert called.wait(20)
            closer.start()
            closer.join(20)
            assert not closer.is_alive()
        finally:
            released.set()


STEP = 1 if CAMPAIGN else 23
MECHANISMS = one_of("OAUTHBEARER", "PLAIN", "SCRAM-SHA-512")
VERSIONS, MECHANISM, MESSAGE = (
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
)
UNTOUCHED = Spoil(MESSAGE, "pass")
BEFORE: dict[str, list[list[Spoil]]] = {
    "PLAIN": [[]],
    "SCRAM-SHA-512": [[], [UNTOUCHED]],
    "OAUTHBEARER": [[]],
}
"""For each message of a login, the handling of the earlier ones."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["cut-request", "cut-response"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_interrupted_login_is_retried(mechanism: str, how: str, guarded: GuardedBroker) -> None:
    topic, sent = f"cut-{mechanism}-{how}", 0
    options = guarded.secrets("plain", mechanism)
    with FrameProxy(int(guarded.address("plain", mechanism).rpartition(":")[2])) as proxy:
        with LoopbackResolver(proxy.port).producer(**options) as first:
            first.send(topic, b"%d" % sent).get(20)
        for api in (VERSIONS, MECHANISM, MESSAGE):
            for before in BEFORE[mechanism] if api is MESSAGE else [[]]:
                sizes = proxy.sizes[api]
                size = sizes.request if how == "cut-request" else sizes.response
                for at in range(0, size + 1, STEP):
                    proxy.arm(*before, Spoil(api, how, at, reset=at % 2 == 1))
                    sent += 1
                    with LoopbackResolver(proxy.port).producer(**options) as producer:
                        producer.send(topic, b"%d" % sent).get(20)
                    assert not proxy.armed
    found = read_back(guarded.address("plain", "none"), topic, 1)
    assert [record.value for record in found] == [b"%d" % number for number in range(sent + 1)]
