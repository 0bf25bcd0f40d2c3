"""Tokens from an issuer, by HTTPS: fetched, fetched again ahead of time, and each way to fail."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.errors import ConfigError, SaslAuthenticationError
from kprod.security.client_credentials import ClientCredentials
from tests.support.certificates import Certificates
from tests.support.guarded_broker import GuardedBroker
from tests.support.ports import free_port
from tests.support.recipes import recipe
from tests.support.token_server import CLIENT, SECRET, TRICKLE, Answer, TokenServer


@pytest.fixture
def issuer(certificates: Certificates) -> Iterator[TokenServer]:
    with TokenServer(certificates.server, certificates.ca) as server:
        yield server


def options_of(guarded: GuardedBroker, issuer: TokenServer, **changed: Any) -> dict[str, Any]:
    options = guarded.options("tls", "OAUTHBEARER")
    options.pop("sasl_oauth_token_provider")
    return {
        **options,
        "sasl_oauthbearer_token_endpoint_url": issuer.url,
        "sasl_oauthbearer_client_id": CLIENT,
        "sasl_oauthbearer_client_secret": SECRET,
        "sasl_oauthbearer_scope": "kafka orders",
        "sasl_oauthbearer_cafile": guarded.certificates.ca,
        "max_block_ms": 20_000,
        **changed,
    }


def test_a_token_logs_in_on_every_connection(guarded: GuardedBroker, issuer: TokenServer) -> None:
    """One serves for all of them; name and secret may have characters that mean something else."""
    with KafkaProducer(**options_of(guarded, issuer)) as producer:
        producer.send("t", b"x").get(timeout=20)
    assert (issuer.issued, issuer.scopes) == (1, [["kafka orders"]])


def test_the_recipe_delivers(guarded: GuardedBroker, issuer: TokenServer) -> None:
    options: dict[str, Any] = dict(recipe("Tokens from an issuer"))
    name, secret = (options[f"sasl_oauthbearer_client_{part}"] for part in ("id", "secret"))
    issuer.clients[name] = secret
    ours = options_of(guarded, issuer)
    here = ("bootstrap_servers", "ssl_cafile", "sasl_oauthbearer_cafile")
    options |= {name: ours[name] for name in here}
    options["sasl_oauthbearer_token_endpoint_url"] = issuer.url
    with KafkaProducer(**options) as producer:
        producer.send("t", b"x").get(timeout=20)


def refused(guarded: GuardedBroker, issuer: TokenServer, **changed: Any) -> str:
    options = options_of(guarded, issuer, **changed)
    with KafkaProducer(**options) as producer, pytest.raises(SaslAuthenticationError) as raised:
        producer.send("t", b"never")
    assert issuer.url in str(raised.value) or "expired" in str(raised.value)
    assert "canary" not in str(raised.value)
    return str(raised.value)


JSON = (("content-type", "application/json"),)
ODD = [
    (Answer(500, b"<html>"), "HTTP status 500"),
    (Answer(503, b'{"error": "temporarily_unavailable"}', JSON), "503: temporarily_unavailable"),
    (Answer(302, b"elsewhere", (("location", "http://127.0.0.1:1/"),)), "HTTP status 302"),
    (Answer(200, b"<html>garbage", JSON), "not a JSON object"),
    (Answer(200, b"[" * 100_000, JSON), "not a JSON object"),
    (Answer(200, b"[]", JSON), "not a JSON object"),
    (Answer(200, b"{}", JSON), "no access_token"),
    (Answer(200, b'{"access_token": 7}', JSON), "no access_token"),
    (Answer(200, b'{"access_token": "t", "expires_in": "soon"}', JSON), "no number"),
    (Answer(200, b'{"access_token": "t", "expires_in": -1}', JSON), "already expired"),
    (Answer(200, b'{"error": "invalid_scope"}', JSON), "invalid_scope"),
    (Answer(400, b'{"error": "\\u001b[31m"}', JSON), "400: an error without a proper code"),
]


@pytest.mark.parametrize(("answer", "words"), ODD, ids=[words for _, words in ODD])
def test_answers_that_are_no_tokens(
    answer: Answer, words: str, guarded: GuardedBroker, issuer: TokenServer
) -> None:
    issuer.odd = lambda: answer
    assert words in refused(guarded, issuer)


def test_a_secret_that_is_wrong(guarded: GuardedBroker, issuer: TokenServer) -> None:
    text = refused(guarded, issuer, sasl_oauthbearer_client_secret="canary wrong")
    assert "HTTP status 401: invalid_client" in text


def test_an_issuer_nobody_vouches_for(guarded: GuardedBroker, issuer: TokenServer) -> None:
    text = refused(guarded, issuer, sasl_oauthbearer_cafile=guarded.certificates.other_ca)
    assert "certificate verify failed" in text


def test_an_issuer_of_another_name(guarded: GuardedBroker, certificates: Certificates) -> None:
    strange = certificates.issue("elsewhere", "issuer.example.org")
    with TokenServer(strange, certificates.ca) as issuer:
        assert "Hostname mismatch" in refused(guarded, issuer)


def test_no_issuer(guarded: GuardedBroker, issuer: TokenServer) -> None:
    issuer.url = f"https://localhost:{free_port()}/token"
    assert "Connection refused" in refused(guarded, issuer)


@pytest.mark.parametrize("answer", [None, Answer(503, b"busy")])
def test_what_an_address_asks_for_is_not_told(
    answer: Answer | None,
    guarded: GuardedBroker,
    issuer: TokenServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Some issuers take a key in the query; urllib3 logs it at DEBUG."""
    issuer.odd = lambda: answer
    place = issuer.url
    issuer.url += "?code=canary-5ecret-Zx9"
    with (
        caplog.at_level(logging.DEBUG),
        KafkaProducer(**options_of(guarded, issuer)) as producer,
    ):
        said = repr(producer.config)
        try:
            producer.send("t", b"x").get(timeout=20)
        except SaslAuthenticationError as error:
            said += str(error)
    assert issuer.queries[-1] == "code=canary-5ecret-Zx9"
    assert (answer is None) or f"no token from {place}: HTTP status 503" in said
    assert "canary" not in said + caplog.text


@pytest.mark.parametrize("body", [b"", TRICKLE])
def test_an_issuer_that_does_not_answer(body: bytes, issuer: TokenServer) -> None:
    """Not at all, or a byte now and then."""
    issuer.odd = lambda: Answer(200, body)
    trust = ssl.create_default_context(cafile=issuer.authority)
    provider = ClientCredentials(issuer.url, CLIENT, lambda: SECRET, None, lambda: trust, 0.3)
    with pytest.raises(SaslAuthenticationError, match=r"no answer within 0\.3 s"):
        provider.token()


def test_authorities_that_cannot_be_read(guarded: GuardedBroker, issuer: TokenServer) -> None:
    with pytest.raises(ConfigError, match="sasl_oauthbearer_cafile: cannot read"):
        KafkaProducer(**options_of(guarded, issuer, sasl_oauthbearer_cafile="/not/there"))


def test_a_token_is_replaced_ahead_of_time(guarded: GuardedBroker, issuer: TokenServer) -> None:
    """Its login ends with it: so the broker is told the next one. A failure meanwhile is survived.

    The second token is fetched when 0.8 of the first one's life is over, for the login that is
    repeated at 0.85 to 0.95 of it: the issuer fails then, once.
    """
    failures = [Answer(500, b"busy")]
    issuer.lifetime = 1.5
    issuer.odd = lambda: failures.pop() if issuer.issued == 1 and failures else None
    with KafkaProducer(**options_of(guarded, issuer, linger_ms=0)) as producer:
        futures: list[Any] = []
        while issuer.issued < 3:
            futures.append(producer.send("replaced", b"%d" % len(futures), partition=0))
            futures[-1].get(timeout=50)
    assert [future.get().offset for future in futures] == list(range(len(futures)))
