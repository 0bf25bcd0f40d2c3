"""OAuth tokens from an issuer over HTTPS: fetch, refresh and failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.errors import SaslAuthenticationError
from tests.support.certificates import Certificates
from tests.support.guarded_broker import GuardedBroker
from tests.support.http_service import Answer
from tests.support.ports import free_port
from tests.support.recipes import recipe
from tests.support.token_server import CLIENT, JSON, SECRET, TokenServer

SECRET_OPTION, AUTHORITY = "sasl_oauthbearer_client_secret", "sasl_oauthbearer_cafile"


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
        SECRET_OPTION: SECRET,
        "sasl_oauthbearer_scope": "kafka orders",
        AUTHORITY: guarded.certificates.ca,
        "max_block_ms": 20_000,
        **changed,
    }


def test_a_token_logs_in_on_every_connection(guarded: GuardedBroker, issuer: TokenServer) -> None:
    """One token for all of them. Client id and secret contain special characters."""
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
    """The error of a refused login. A key in the URL query is sent but not disclosed."""
    url = issuer.url
    issuer.url += "?code=canary"
    options = options_of(guarded, issuer, **changed)
    with KafkaProducer(**options) as producer, pytest.raises(SaslAuthenticationError) as raised:
        producer.send("t", b"never")
    assert issuer.queries in ([], ["code=canary"])
    assert url in str(raised.value) or "expired" in str(raised.value)
    assert "canary" not in str(raised.value)
    return str(raised.value)


INVALID_ANSWERS = [
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


@pytest.mark.parametrize(
    ("answer", "message"), INVALID_ANSWERS, ids=[message for _, message in INVALID_ANSWERS]
)
def test_invalid_token_responses_fail_the_login(
    answer: Answer, message: str, guarded: GuardedBroker, issuer: TokenServer
) -> None:
    issuer.odd = lambda: answer
    assert message in refused(guarded, issuer)


def test_errors_of_a_refusing_or_untrusted_issuer(
    guarded: GuardedBroker, certificates: Certificates
) -> None:
    other_host = certificates.issue("elsewhere", "issuer.example.org")
    for certfile, changed, message in (
        (certificates.server, {SECRET_OPTION: "canary wrong"}, "HTTP status 401: invalid_client"),
        (certificates.server, {AUTHORITY: certificates.other_ca}, "certificate verify failed"),
        (other_host, {}, "Hostname mismatch"),
        (None, {}, "Connection refused"),
    ):
        with TokenServer(certfile or certificates.server, certificates.ca) as issuer:
            if certfile is None:
                issuer.url = f"https://localhost:{free_port()}/token"
            assert message in refused(guarded, issuer, **changed)


def test_a_token_is_refreshed_before_it_expires(
    guarded: GuardedBroker, issuer: TokenServer
) -> None:
    """The session expires with its token, so the login is repeated with the next one.

    The second token is fetched after 0.8 of the first one's lifetime, for the login repeated at
    0.85 to 0.95 of it. The issuer then fails once.
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
