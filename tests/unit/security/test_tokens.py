"""Access tokens: answers of the issuer, caching, renewal and expiry."""

from __future__ import annotations

import datetime
import gzip
import logging
import random
import threading
import traceback
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
import time_machine
from freezegun import freeze_time

from kprod.errors import ConfigError, SaslAuthenticationError
from kprod.security.client_credentials import ClientCredentials
from kprod.security.oauthbearer import AHEAD, PATIENCE, ProvidedTokens
from tests.support.answering_server import answering
from tests.support.ports import free_port
from tests.support.tier import seeds

PAUSE = 0.1
LIMIT = 0.3
STATUS = b"HTTP/1.1 200 OK\r\n"
TOKEN = b'{"access_token": "t", "expires_in": 60}'


@contextmanager
def issuer(
    pieces: Sequence[bytes], pause: float = 0.0, sent: list[bytes] | None = None
) -> Iterator[ClientCredentials]:
    """Credentials of an issuer that answers with ``pieces``; ``sent`` gets the pieces sent."""
    timeout = LIMIT if pause else 20.0
    with answering(lambda _: pieces, pause) as server:
        url = f"http://127.0.0.1:{server.port}/token"
        yield ClientCredentials(url, "client", lambda: "secret", timeout=timeout)
        if sent is not None:
            sent += server.sent


def answer(body: bytes, *headers: bytes) -> bytes:
    length = b"content-length: %d" % len(body)
    return STATUS + b"\r\n".join([length, *headers, b"", b""]) + body


LATE = {
    "slow headers": [STATUS, *(b"x-%d: y\r\n" % number for number in range(90)), b"\r\n", TOKEN],
    "a header in single bytes": [STATUS, b"x: ", *[b"y"] * 90, b"\r\n\r\n", TOKEN],
    "continue, without end": [*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 90, answer(TOKEN)],
    "a slow body without a length": [STATUS + b"\r\n", *[b" "] * 90, TOKEN],
    "a slow body": [answer(b" " * 90 + TOKEN)[: -90 - len(TOKEN)], *[b" "] * 90, TOKEN],
}


@pytest.mark.parametrize("pieces", LATE.values(), ids=LATE)
def test_the_timeout_covers_the_whole_answer(pieces: list[bytes]) -> None:
    """The whole answer takes 9 s and holds a valid token."""
    before = threading.active_count()
    sent: list[bytes] = []
    timed_out = pytest.raises(SaslAuthenticationError, match=r"no answer within 0\.3 s")
    with issuer(pieces, PAUSE, sent) as provider, timed_out:
        provider.token()
    assert len(sent) < len(pieces)
    assert threading.active_count() == before


@pytest.mark.parametrize("lifetime", [b"60", b'"3600"'])
def test_a_valid_answer_gives_a_token_and_its_expiry(lifetime: bytes) -> None:
    body = TOKEN.replace(b"60", lifetime)
    with issuer([b"HTTP/1.1 100 Continue\r\n\r\n", answer(body)]) as provider:
        granted = provider.token()
    assert granted[0] == "t"
    assert isinstance(granted[1], float)


@pytest.mark.parametrize("lifetime", ["1e400", "Infinity", "-Infinity", "NaN", '"inf"', '"soon"'])
def test_an_invalid_expires_in_is_refused(lifetime: str) -> None:
    """A token that never expires would never be replaced."""
    body = b'{"access_token": "t", "expires_in": %s}' % lifetime.encode()
    refused = pytest.raises(SaslAuthenticationError, match="no number of seconds")
    with issuer([answer(body)]) as provider, refused:
        provider.token()


def test_an_error_quotes_the_issuer_in_one_printable_line() -> None:
    refused = pytest.raises(SaslAuthenticationError)
    answered = b"HTTP/1.1 \x1b[31mno\x85 " + b"x" * 60_000 + b"\r\n\r\n"
    with issuer([answered]) as provider, refused as raised:
        provider.token()
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 1500


HUGE = {
    "a body": answer(b" " * 5_000_000 + TOKEN),
    "a body without a length": STATUS + b"\r\n" + b" " * 5_000_000 + TOKEN,
    "a chunk": STATUS + b"transfer-encoding: chunked\r\n\r\n4c4b40\r\n" + b" " * 5_000_000,
    "a gzip bomb": answer(gzip.compress(bytes(50_000_000)), b"content-encoding: gzip"),
    "a header": STATUS + b"x: " + b"y" * 5_000_000 + b"\r\n\r\n" + TOKEN,
    "headers": STATUS + b"x: y\r\n" * 1_000_000 + b"\r\n" + TOKEN,
}


@pytest.mark.parametrize("response", HUGE.values(), ids=HUGE)
def test_an_oversized_answer_is_refused_without_buffering_it(response: bytes) -> None:
    short = answer(b"{}")
    peak_of_refused(short)  # does the imports
    assert peak_of_refused(response) - peak_of_refused(short) < 2_000_000


def peak_of_refused(response: bytes) -> int:
    """Peak of the bytes allocated by Python while this answer is refused.

    Free-threaded Python adds 8 bytes per function and class for each of the two threads.
    """
    tracemalloc.start()
    try:
        with issuer([response]) as provider, pytest.raises(SaslAuthenticationError):
            provider.token()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_mutated_answer_gives_a_token_or_a_printable_error() -> None:
    for seed in range(seeds("KPROD_TOKEN_SEEDS", 20, 200)):
        rng = random.Random(seed)
        mutated = bytearray(answer(TOKEN, b"content-type: application/json"))
        for _ in range(rng.choice((1, 2, 5))):
            at = rng.randrange(len(mutated))
            mutated[at : at + rng.randrange(3)] = rng.randbytes(rng.choice((0, 1, 1, 30)))
        with issuer([bytes(mutated)]) as provider:
            try:
                result = provider.token()
            except SaslAuthenticationError as error:
                result = str(error)
        assert isinstance(result, tuple) or result.isprintable(), f"seed {seed}"


@pytest.mark.parametrize(
    "url",
    [
        *("http://issuer/token?key=canary", "ftp://issuer", "issuer/token"),
        *("https://me:canary@issuer/token", "https://me:[canary]@issuer/token"),
        *("https://me:canary\u2100@issuer/token", "https://me:ca/nary@issuer/token"),
        "http://issuer\\@localhost/token?key=canary",
    ],
)
def test_a_token_url_without_https_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected https://") as raised:
        ClientCredentials(url, "client", lambda: "secret")
    shown = "".join(traceback.format_exception(raised.value))
    assert "canary" not in shown.replace(repr(url), "")
    assert raised.value.__context__ is None


def test_the_query_of_the_url_is_not_shown() -> None:
    url = f"http://127.0.0.1:{free_port()}/token?key=canary"
    credentials = ClientCredentials(url, "client", lambda: "secret")
    with pytest.raises(SaslAuthenticationError) as refused:
        credentials.token()
    for shown in (repr(credentials), str(refused.value)):
        assert "//127.0.0.1:" in shown
        assert "canary" not in shown


PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize("freeze", [freeze_time(PAST), time_machine.travel(PAST, tick=False)])
def test_a_token_is_accepted_while_a_test_library_freezes_the_clock(freeze: Any) -> None:
    with issuer([answer(TOKEN)]) as credentials, freeze:
        assert ProvidedTokens(credentials).token() == "t"


LIFETIME = 100.0


class Issuer:
    """Returns numbered tokens, or raises ``failure`` if it is set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.requests = 0
        self.failure: Exception | None = None

    def token(self) -> tuple[str, float]:
        self.requests += 1
        if self.failure is not None:
            raise self.failure
        return f"token-{self.requests}", self.now + LIFETIME


def tokens_of(issuer: Issuer) -> ProvidedTokens:
    return ProvidedTokens(issuer, lambda: issuer.now)


def test_a_token_is_reused_until_it_is_due_for_renewal() -> None:
    issuer = Issuer()
    tokens = tokens_of(issuer)
    assert tokens.token() == "token-1"
    issuer.now += LIFETIME * AHEAD - 0.1
    assert tokens.token() == "token-1"
    issuer.now += 0.1
    assert tokens.token() == "token-2"


def test_setting_the_clock_back_does_not_delay_the_renewal() -> None:
    issuer, monotonic = Issuer(), [0.0]
    tokens = ProvidedTokens(issuer, lambda: issuer.now, steady=lambda: monotonic[0])
    tokens.token()
    issuer.now -= 500
    monotonic[0] += LIFETIME * AHEAD - 1
    assert tokens.token() == "token-1"
    monotonic[0] += 1
    assert tokens.token() == "token-2"


@pytest.mark.parametrize("failure", [SaslAuthenticationError("HTTP status 500"), OSError("canary")])
def test_after_a_failed_renewal_the_token_is_used_until_it_expires(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer()
    tokens = tokens_of(issuer)
    tokens.token()
    issuer.failure = failure
    issuer.now += LIFETIME - 1
    with caplog.at_level(logging.WARNING):
        assert tokens.token() == "token-1"
    assert "is valid for 1 s" in caplog.text
    assert "canary" not in caplog.text
    issuer.now += 1
    with pytest.raises(SaslAuthenticationError):
        tokens.token()
    issuer.failure = None
    assert tokens.token() == "token-4"


def test_a_failed_renewal_is_not_retried_at_once() -> None:
    """If the provider hangs, each login would wait for it."""
    issuer = Issuer()
    tokens = tokens_of(issuer)
    tokens.token()
    issuer.failure = OSError("no answer")
    issuer.now += LIFETIME * AHEAD
    assert [tokens.token() for _ in range(5)] == ["token-1"] * 5
    assert issuer.requests == 2
    issuer.now += PATIENCE
    assert tokens.token() == "token-1"
    assert issuer.requests == 3


def test_other_logins_use_the_current_token_during_a_renewal() -> None:
    issuer = Issuer()
    meanwhile: list[str] = []

    def ask() -> Any:
        if issuer.requests:
            other = threading.Thread(target=lambda: meanwhile.append(tokens.token()), daemon=True)
            other.start()
            other.join(20)
        return issuer.token()

    tokens = ProvidedTokens(ask, lambda: issuer.now)
    tokens.token()
    issuer.now += LIFETIME * AHEAD
    assert tokens.token() == "token-2"
    assert meanwhile == ["token-1"]


def test_a_token_is_cached_for_ever_only_if_its_expiry_is_infinite() -> None:
    number = count(1)
    each_time = ProvidedTokens(lambda: f"token-{next(number)}")
    assert [each_time.token(), each_time.token()] == ["token-1", "token-2"]
    once = iter([("token", float("inf"))])
    for_ever = ProvidedTokens(lambda: next(once), lambda: 1000.0)
    assert [for_ever.token(), for_ever.token()] == ["token", "token"]


@pytest.mark.parametrize(
    ("expires", "message"),
    [
        *((when, "already expired") for when in (float("nan"), 999.0, True)),
        (1_800_000_000_000, "divide it by 1000"),  # AWS's signer returns milliseconds
    ],
)
def test_an_expired_token_or_an_invalid_expiry_is_refused(expires: float, message: str) -> None:
    tokens = ProvidedTokens(lambda: ("token", expires), lambda: 1000.0)
    for _ in range(2):
        with pytest.raises(SaslAuthenticationError, match=message):
            tokens.token()
