"""GSSAPI with Apache Kafka and a key distribution centre of MIT Kerberos.

``KPROD_CAMPAIGN=long`` does it with the older version, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from kprod import KafkaProducer
from kprod.errors import SaslAuthenticationError
from kprod.security.kerberos import KerberosConversation
from tests.integration.security.test_apache_kafka_guarded import VALUES, VERSIONS, send_for
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.guards import guards, with_kerberos
from tests.support.certificates import Certificates
from tests.support.committed_records import read_back
from tests.support.kerberos_realm import KerberosRealm
from tests.support.recipes import recipe
from tests.support.topic_admin import TopicAdmin

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def centre() -> Iterator[KerberosRealm]:
    with KerberosRealm() as found:
        yield found


@pytest.fixture
def realm(centre: KerberosRealm, monkeypatch: pytest.MonkeyPatch) -> KerberosRealm:
    """What this process belongs to, with a ticket."""
    for name, value in centre.environment.items():
        monkeypatch.setenv(name, value)
    centre.fetch_ticket()
    return centre


class Kerberized(NamedTuple):
    bootstrap_servers: str
    options: dict[str, Any]


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(
    request: pytest.FixtureRequest,
    certificates: Certificates,
    centre: KerberosRealm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Kerberized]:
    folder = tmp_path_factory.mktemp("kafka")
    guarded = with_kerberos(guards(certificates), centre)
    with ApacheKafka(folder, request.param, guards=guarded) as broker:
        for name in ("t", "again"):
            TopicAdmin(broker.bootstrap_servers).create(name, 1)
        options = {
            "bootstrap_servers": broker.addresses["KERBEROS"],
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "GSSAPI",
            "ssl_cafile": certificates.ca,
            "max_block_ms": 30_000,
        }
        yield Kerberized(broker.bootstrap_servers, options)


def stored(kafka: Kerberized, topic: str) -> list[bytes | None]:
    return [record.value for record in read_back(kafka.bootstrap_servers, topic, 1)]


@pytest.mark.parametrize("own_name", [None, "user@KRBTEST.COM"])
def test_records_arrive(own_name: str | None, kafka: Kerberized, realm: KerberosRealm) -> None:
    before = stored(kafka, "t")
    with KafkaProducer(sasl_kerberos_name=own_name, **kafka.options) as producer:
        futures = [producer.send("t", value) for value in VALUES]
        for future in futures:
            future.get(timeout=30)
    assert stored(kafka, "t") == before + VALUES


def test_the_recipe_delivers(kafka: Kerberized, realm: KerberosRealm) -> None:
    here = {name: kafka.options[name] for name in ("bootstrap_servers", "ssl_cafile")}
    with KafkaProducer(**{**recipe("Kerberos"), **here}) as producer:
        producer.send("t", b"recipe").get(timeout=30)
    assert stored(kafka, "t")[-1] == b"recipe"


def test_logins_are_repeated_under_load(kafka: Kerberized, realm: KerberosRealm) -> None:
    send_for(3.5, kafka.options, kafka.bootstrap_servers)


def refused(kafka: Kerberized, **changed: Any) -> str:
    options = {**kafka.options, **changed}
    with KafkaProducer(**options) as producer, pytest.raises(SaslAuthenticationError) as raised:
        producer.send("t", b"never")
    return str(raised.value)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sasl_kerberos_domain_name": "elsewhere"}, "sasl_kerberos_domain_name"),
        ({"sasl_kerberos_service_name": "hdfs"}, "sasl_kerberos_service_name"),
        ({"sasl_kerberos_name": "nobody@KRBTEST.COM"}, "nobody@KRBTEST.COM"),
    ],
)
def test_names_that_nobody_has(
    changed: dict[str, str], words: str, kafka: Kerberized, realm: KerberosRealm
) -> None:
    assert words in refused(kafka, **changed)


def test_the_ticket_may_come_later(kafka: Kerberized, realm: KerberosRealm) -> None:
    realm.drop_ticket()
    with KafkaProducer(reconnect_backoff_max_ms=100, **kafka.options) as producer:
        with pytest.raises(SaslAuthenticationError, match="run kinit"):
            producer.send("t", b"never")
        realm.fetch_ticket()
        sent = None
        while sent is None:
            try:
                sent = producer.send("t", b"late")
            except SaslAuthenticationError:  # of an attempt that began before
                continue
        sent.get(timeout=30)
    assert stored(kafka, "t")[-1] == b"late"


def test_no_centre_to_ask(kafka: Kerberized, realm: KerberosRealm) -> None:
    realm.stop()
    try:
        assert "Cannot contact any KDC" in refused(kafka)
    finally:
        realm.start()


def begin_until_refused() -> None:
    """Nothing says when the centre will refuse a ticket, but asking it."""
    while True:
        KerberosConversation("kafka", "127.0.0.1", None).respond(None)
        time.sleep(0.1)


def test_a_ticket_that_has_expired(realm: KerberosRealm) -> None:
    realm.fetch_ticket("1s")
    realm.stop()
    realm.start(clock_skew=1)
    try:
        with pytest.raises(SaslAuthenticationError, match="Ticket expired; run kinit again"):
            begin_until_refused()
    finally:
        realm.stop()
        realm.start()
