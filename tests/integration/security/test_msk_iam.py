"""AWS_MSK_IAM against a broker that checks the signature of the token."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kprod import KafkaProducer
from kprod.broker import Authentication, EmbeddedBroker, make_listener, tls_context
from kprod.errors import SaslAuthenticationError
from kprod.security.oauthbearer import MskTokens
from tests.support.aws_signature import SignedRequests
from tests.support.certificates import Certificates
from tests.support.recipes import recipe

REGION = "eu-central-1"
KEY, SECRET = "AKIAEXAMPLE", "canary-aws-5ecret"


class Msk(NamedTuple):
    options: dict[str, Any]
    requests: SignedRequests


@pytest.fixture
def msk(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Msk]:
    """Credentials come from the environment only, not from files or AWS services."""
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    requests = SignedRequests(REGION, {KEY: SECRET})
    login = Authentication(mechanisms=("OAUTHBEARER",), tokens=requests.check)
    listener = make_listener("SASL", tls=tls_context(certificates.server), authentication=login)
    with EmbeddedBroker(listeners=[listener], topics={"t": 1}) as broker:
        options = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "AWS_MSK_IAM",
            "ssl_cafile": certificates.ca,
            "max_block_ms": 20_000,
        }
        yield Msk(options, requests)


def test_a_signed_request_logs_in(msk: Msk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with KafkaProducer(sasl_msk_region=REGION, **msk.options) as producer:
        producer.send("t", b"x").get(timeout=20)
    request = msk.requests.seen[0]
    assert request["X-Amz-Algorithm"] == "AWS4-HMAC-SHA256"
    assert request["X-Amz-SignedHeaders"] == "host"
    assert request["X-Amz-Expires"] == "900"
    assert SECRET not in caplog.text


def test_a_session_token_of_a_role_is_sent(msk: Msk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a+session/token==")
    with KafkaProducer(sasl_msk_region=REGION, **msk.options) as producer:
        producer.send("t", b"x").get(timeout=20)
    assert msk.requests.seen[0]["X-Amz-Security-Token"] == "a+session/token=="


def test_the_recipe_delivers(msk: Msk) -> None:
    """The region is set explicitly because the broker name is a loopback address."""
    options = recipe("AWS MSK with IAM")
    region = str(options["bootstrap_servers"]).split(".")[-3]
    here = {name: msk.options[name] for name in ("bootstrap_servers", "ssl_cafile")}
    with KafkaProducer(**{**options, **here, "sasl_msk_region": region}) as producer:
        producer.send("t", b"x").get(timeout=20)


@pytest.mark.parametrize(
    ("changed", "region", "message"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "another"}, REGION, "the broker refused"),
        ({}, "us-east-1", "the broker refused"),
        (dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ""), REGION, "no AWS cred"),
        ({}, None, "set sasl_msk_region"),
    ],
    ids=["another secret", "another region", "no credentials", "no region"],
)
def test_refused_and_impossible_logins_are_explained(
    msk: Msk,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, str],
    region: str | None,
    message: str,
) -> None:
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    with (
        KafkaProducer(sasl_msk_region=region, **msk.options) as producer,
        pytest.raises(SaslAuthenticationError, match=message),
    ):
        producer.send("t", b"never")


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com", "eu-west-1"),
        ("boot-x.c1.kafka-serverless.us-east-2.amazonaws.com.", "us-east-2"),
        ("b-1.demo.abc.c4.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
    ],
)
def test_the_region_is_taken_from_the_broker_name(msk: Msk, host: str, region: str) -> None:
    token, expires = MskTokens(host, None).token()
    grant = SignedRequests(region, {KEY: SECRET}).check(token)
    assert grant.principal == f"User:{KEY}"
    assert grant.expires is not None
    assert abs(grant.expires - expires) <= 1
