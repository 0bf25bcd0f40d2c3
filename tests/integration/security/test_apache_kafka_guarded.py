"""TLS and every login against Apache Kafka.

``KPROD_CAMPAIGN=long`` also runs the older version.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.errors import SaslAuthenticationError, TlsAuthenticationError
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.guards import ODD_PASSWORD, ODD_USER, PROTOCOLS, guards
from tests.support.apache_kafka.jars import NEWEST, OLDER
from tests.support.certificates import Certificates
from tests.support.committed_records import read_back
from tests.support.guarded_broker import PASSWORD, USER, unsigned_token
from tests.support.tier import CAMPAIGN
from tests.support.topic_admin import TopicAdmin

pytestmark = pytest.mark.full

VERSIONS = [NEWEST, OLDER] if CAMPAIGN else [NEWEST]
VALUES = [b"small", b"x" * 900_000, b"last"]


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(
    request: pytest.FixtureRequest,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ApacheKafka]:
    folder = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(folder, request.param, guards=guards(certificates)) as broker:
        for name in [*LOGINS, "again", "odd"]:
            TopicAdmin(broker.bootstrap_servers).create(name, 1)
        yield broker


LOGIN = {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
LOGINS: dict[str, tuple[str, dict[str, Any]]] = {
    "tls": ("TLS", {}),
    "mtls": ("MTLS", {}),
    "plain": ("PLAIN", {"sasl_mechanism": "PLAIN", **LOGIN}),
    "scram-256": ("SCRAM", {"sasl_mechanism": "SCRAM-SHA-256", **LOGIN}),
    "scram-512": ("SCRAM", {"sasl_mechanism": "SCRAM-SHA-512", **LOGIN}),
    "oauth": (
        "OAUTH",
        {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": unsigned_token},
    ),
}


def options_of(name: str, kafka: ApacheKafka, certificates: Certificates) -> dict[str, Any]:
    listener, login = LOGINS[name]
    certificate = {"ssl_certfile": certificates.client} if name == "mtls" else {}
    return {
        "bootstrap_servers": kafka.addresses[listener],
        "security_protocol": PROTOCOLS[listener],
        "ssl_cafile": certificates.ca,
        "max_block_ms": 30_000,
        **certificate,
        **login,
    }


@pytest.mark.parametrize("name", LOGINS)
def test_records_arrive(name: str, kafka: ApacheKafka, certificates: Certificates) -> None:
    with KafkaProducer(**options_of(name, kafka, certificates)) as producer:
        futures = [producer.send(name, value) for value in VALUES]
        assert [future.get(timeout=30).offset for future in futures] == [0, 1, 2]
    assert [record.value for record in read_back(kafka.bootstrap_servers, name, 1)] == VALUES


@pytest.mark.parametrize("name", ["scram-256", "scram-512"])
def test_passwords_with_special_characters_log_in(
    name: str, kafka: ApacheKafka, certificates: Certificates
) -> None:
    """The broker's own tool stored it."""
    options = options_of(name, kafka, certificates)
    odd = {"sasl_plain_username": ODD_USER, "sasl_plain_password": ODD_PASSWORD}
    with KafkaProducer(**{**options, **odd}) as producer:
        producer.send("odd", b"x").get(timeout=30)


@pytest.mark.parametrize("name", ["plain", "scram-256", "scram-512"])
def test_wrong_passwords_are_refused(
    name: str, kafka: ApacheKafka, certificates: Certificates
) -> None:
    options = {**options_of(name, kafka, certificates), "sasl_plain_password": "wrong"}
    with KafkaProducer(**options) as producer, pytest.raises(SaslAuthenticationError):
        producer.send(name, b"never")


def test_a_client_certificate_is_required(kafka: ApacheKafka, certificates: Certificates) -> None:
    options = options_of("mtls", kafka, certificates)
    options.pop("ssl_certfile")
    with KafkaProducer(**options) as producer, pytest.raises(TlsAuthenticationError):
        producer.send("mtls", b"never")


def send_for(seconds: float, options: dict[str, Any], bootstrap_servers: str) -> None:
    """Send records one by one to the empty topic "again" and check that all arrive."""
    with KafkaProducer(linger_ms=0, **options) as producer:
        sent = 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            producer.send("again", b"%d" % sent).get(timeout=30)
            sent += 1
    found = [record.value for record in read_back(bootstrap_servers, "again", 1)]
    assert found == [b"%d" % number for number in range(sent)]


def test_logins_are_repeated_under_load(kafka: ApacheKafka, certificates: Certificates) -> None:
    """For more than three session lifetimes: a broker closes expired sessions (KIP-368)."""
    send_for(5, options_of("scram-256", kafka, certificates), kafka.bootstrap_servers)
