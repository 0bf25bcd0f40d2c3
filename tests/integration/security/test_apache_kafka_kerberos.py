"""GSSAPI against Apache Kafka with a KDC of MIT Kerberos.

``KPROD_CAMPAIGN=long`` also runs the older version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from kprod import KafkaProducer
from kprod.errors import SaslAuthenticationError
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
def kdc() -> Iterator[KerberosRealm]:
    with KerberosRealm() as running:
        yield running


@pytest.fixture
def realm(kdc: KerberosRealm, monkeypatch: pytest.MonkeyPatch) -> KerberosRealm:
    """The realm of this process, with a ticket."""
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)
    kdc.fetch_ticket()
    return kdc


class Kerberized(NamedTuple):
    bootstrap_servers: str
    options: dict[str, Any]


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(
    request: pytest.FixtureRequest,
    certificates: Certificates,
    kdc: KerberosRealm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Kerberized]:
    folder = tmp_path_factory.mktemp("kafka")
    guarded = with_kerberos(guards(certificates), kdc)
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


@pytest.mark.parametrize("name", [None, "user@KRBTEST.COM"])
def test_records_arrive(name: str | None, kafka: Kerberized, realm: KerberosRealm) -> None:
    before = stored(kafka, "t")
    with KafkaProducer(sasl_kerberos_name=name, **kafka.options) as producer:
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
    ("changed", "option"),
    [
        ({"sasl_kerberos_domain_name": "elsewhere"}, "sasl_kerberos_domain_name"),
        ({"sasl_kerberos_service_name": "hdfs"}, "sasl_kerberos_service_name"),
        ({"sasl_kerberos_name": "nobody@KRBTEST.COM"}, "nobody@KRBTEST.COM"),
    ],
)
def test_the_error_names_the_wrong_kerberos_option(
    changed: dict[str, str], option: str, kafka: Kerberized, realm: KerberosRealm
) -> None:
    assert option in refused(kafka, **changed)


def test_a_producer_recovers_with_a_new_ticket(kafka: Kerberized, realm: KerberosRealm) -> None:
    realm.drop_ticket()
    with KafkaProducer(reconnect_backoff_max_ms=100, **kafka.options) as producer:
        with pytest.raises(SaslAuthenticationError, match="run kinit"):
            producer.send("t", b"never")
        realm.fetch_ticket()
        sent = None
        while sent is None:
            try:
                sent = producer.send("t", b"late")
            except SaslAuthenticationError:  # of an earlier attempt
                continue
        sent.get(timeout=30)
    assert stored(kafka, "t")[-1] == b"late"


def test_the_error_reports_an_unreachable_kdc(kafka: Kerberized, realm: KerberosRealm) -> None:
    realm.stop()
    try:
        assert "Cannot contact any KDC" in refused(kafka)
    finally:
        realm.start()
