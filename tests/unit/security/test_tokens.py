"""Tokens: what an issuer may answer, and how long they are kept, replaced and used."""

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
    """One that answers with ``pieces``; ``sent`` gets those that left before the client did."""
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
def test_the_time_limit_holds_whatever_comes_meanwhile(pieces: list[bytes]) -> None:
    """All of it would come in 9 s, and be a token."""
    before = threading.active_count()
    sent: list[bytes] = []
    late = pytest.raises(SaslAuthenticationError, match=r"no answer within 0\.3 s")
    with issuer(pieces, PAUSE, sent) as provider, late:
        provider.token()
    assert len(sent) < len(pieces)
    assert threading.active_count() == before


@pytest.mark.parametrize("lifetime", [b"60", b'"3600"'])
def test_an_answer_in_time(lifetime: bytes) -> None:
    body = TOKEN.replace(b"60", lifetime)
    with issuer([b"HTTP/1.1 100 Continue\r\n\r\n", answer(body)]) as provider:
        told = provider.token()
    assert told[0] == "t"
    assert isinstance(told[1], float)


@pytest.mark.parametrize("lifetime", ["1e400", "Infinity", "-Infinity", "NaN", '"inf"', '"soon"'])
def test_a_lifetime_that_is_no_number_of_seconds(lifetime: str) -> None:
    """A token that never expires would never be replaced."""
    body = b'{"access_token": "t", "expires_in": %s}' % lifetime.encode()
    refused = pytest.raises(SaslAuthenticationError, match="no number of seconds")
    with issuer([answer(body)]) as provider, refused:
        provider.token()


def test_what_the_issuer_says_is_told_in_one_line() -> None:
    refused = pytest.raises(SaslAuthenticationError)
    said = b"HTTP/1.1 \x1b[31mno\x85 " + b"x" * 60_000 + b"\r\n\r\n"
    with issuer([said]) as provider, refused as raised:
        provider.token()
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 1500


HUGE = {
    "a body": answer(b" " * 5_000_000 + TOKEN),
    "a body without a length": STATUS + b"\r\n" + b" " * 5_000_000 + TOKEN,
    "a chunk": STATUS + b"transfer-encoding: chunked\r\n\r\n4c4b40\r\n" + b" " * 5_000_000,
    "a bomb": answer(gzip.compress(bytes(50_000_000)), b"content-encoding: gzip"),
    "a header": STATUS + b"x: " + b"y" * 5_000_000 + b"\r\n\r\n" + TOKEN,
    "headers": STATUS + b"x: y\r\n" * 1_000_000 + b"\r\n" + TOKEN,
}


@pytest.mark.parametrize("said", HUGE.values(), ids=HUGE)
def test_an_answer_of_megabytes_is_refused_and_not_kept(said: bytes) -> None:
    short = answer(b"{}")
    peak_of_refused(short)  # imports what it needs
    assert peak_of_refused(said) - peak_of_refused(short) < 2_000_000


def peak_of_refused(said: bytes) -> int:
    """Bytes that Python had allocated at most while this answer was refused.

    Without a GIL the two threads of it count in this, by the functions and classes that the
    process has: Python gives each thread a list of reference counts, 8 bytes for each of them.
    """
    tracemalloc.start()
    try:
        with issuer([said]) as provider, pytest.raises(SaslAuthenticationError):
            provider.token()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_mutated_answer_is_a_token_or_told_in_one_line() -> None:
    for seed in range(seeds("KPROD_TOKEN_SEEDS", 20, 200)):
        rng = random.Random(seed)
        said = bytearray(answer(TOKEN, b"content-type: application/json"))
        for _ in range(rng.choice((1, 2, 5))):
            at = rng.randrange(len(said))
            said[at : at + rng.randrange(3)] = rng.randbytes(rng.choice((0, 1, 1, 30)))
        with issuer([bytes(said)]) as provider:
            try:
                told = provider.token()
            except SaslAuthenticationError as error:
                told = str(error)
        assert isinstance(told, tuple) or told.isprintable(), f"seed {seed}"


@pytest.mark.parametrize(
    "url",
    [
        *("http://issuer/token?key=canary", "ftp://issuer", "issuer/token"),
        *("https://me:canary@issuer/token", "https://me:[canary]@issuer/token"),
        *("https://me:canary\u2100@issuer/token", "https://me:ca/nary@issuer/token"),
        "http://issuer\\@localhost/token?key=canary",
    ],
)
def test_a_secret_leaves_this_machine_by_https_only(url: str) -> None:
    with pytest.raises(ConfigError, match="expected https://") as raised:
        ClientCredentials(url, "client", lambda: "secret")
    told = "".join(traceback.format_exception(raised.value))
    assert "canary" not in told.replace(repr(url), "")
    assert raised.value.__context__ is None


def test_what_stands_behind_the_place_is_not_told() -> None:
    url = f"http://127.0.0.1:{free_port()}/token?key=canary"
    credentials = ClientCredentials(url, "client", lambda: "secret")
    with pytest.raises(SaslAuthenticationError) as refused:
        credentials.token()
    for told in (repr(credentials), str(refused.value)):
        assert "//127.0.0.1:" in told
        assert "canary" not in told


PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize("freeze", [freeze_time(PAST), time_machine.travel(PAST, tick=False)])
def test_a_token_is_good_where_the_clock_is_frozen(freeze: Any) -> None:
    with issuer([answer(TOKEN)]) as credentials, freeze:
        assert ProvidedTokens(credentials).token() == "t"


LIFE = 100.0


class Issuer:
    """Numbers its tokens; ``failure`` is raised instead while it is set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked = 0
        self.failure: Exception | None = None

    def token(self) -> tuple[str, float]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return f"token-{self.asked}", self.now + LIFE


def tokens_of(issuer: Issuer) -> ProvidedTokens:
    return ProvidedTokens(issuer, lambda: issuer.now)


def test_a_token_serves_until_it_is_time_for_the_next() -> None:
    issuer = Issuer()
    tokens = tokens_of(issuer)
    assert tokens.token() == "token-1"
    issuer.now += LIFE * AHEAD - 0.1
    assert tokens.token() == "token-1"
    issuer.now += 0.1
    assert tokens.token() == "token-2"


def test_a_clock_that_is_set_back_prolongs_no_token() -> None:
    issuer, steady = Issuer(), [0.0]
    tokens = ProvidedTokens(issuer, lambda: issuer.now, steady=lambda: steady[0])
    tokens.token()
    issuer.now -= 500
    steady[0] += LIFE * AHEAD - 1
    assert tokens.token() == "token-1"
    steady[0] += 1
    assert tokens.token() == "token-2"


@pytest.mark.parametrize("failure", [SaslAuthenticationError("HTTP status 500"), OSError("canary")])
def test_a_token_serves_until_its_end_while_there_is_no_other(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer()
    tokens = tokens_of(issuer)
    tokens.token()
    issuer.failure = failure
    issuer.now += LIFE - 1
    with caplog.at_level(logging.WARNING):
        assert tokens.token() == "token-1"
    assert "is valid for 1 s" in caplog.text
    assert "canary" not in caplog.text
    issuer.now += 1
    with pytest.raises(SaslAuthenticationError):
        tokens.token()
    issuer.failure = None
    assert tokens.token() == "token-4"


def test_a_provider_that_has_no_token_is_left_alone_for_a_while() -> None:
    """It may hang: each login would wait for it, one after the other."""
    issuer = Issuer()
    tokens = tokens_of(issuer)
    tokens.token()
    issuer.failure = OSError("no answer")
    issuer.now += LIFE * AHEAD
    assert [tokens.token() for _ in range(5)] == ["token-1"] * 5
    assert issuer.asked == 2
    issuer.now += PATIENCE
    assert tokens.token() == "token-1"
    assert issuer.asked == 3


def test_other_logins_use_the_token_while_one_asks_for_the_next() -> None:
    issuer = Issuer()
    within: list[str] = []

    def ask() -> Any:
        if issuer.asked:
            other = threading.Thread(target=lambda: within.append(tokens.token()), daemon=True)
            other.start()
            other.join(20)
        return issuer.token()

    tokens = ProvidedTokens(ask, lambda: issuer.now)
    tokens.token()
    issuer.now += LIFE * AHEAD
    assert tokens.token() == "token-2"
    assert within == ["token-1"]


def test_a_token_without_an_end_stays_in_use_if_its_provider_says_so() -> None:
    asked = count(1)
    each_time = ProvidedTokens(lambda: f"token-{next(asked)}")
    assert [each_time.token(), each_time.token()] == ["token-1", "token-2"]
    once = iter([("token", float("inf"))])
    for_ever = ProvidedTokens(lambda: next(once), lambda: 1000.0)
    assert [for_ever.token(), for_ever.token()] == ["token", "token"]


@pytest.mark.parametrize(
    ("expires", "said"),
    [
        *((when, "already expired") for when in (float("nan"), 999.0, True)),
        (1_800_000_000_000, "divide it by 1000"),  # AWS's signer tells milliseconds
    ],
)
def test_a_token_that_never_ends_or_has_ended_is_refused(expires: float, said: str) -> None:
    """It would be replaced at no time."""
    tokens = ProvidedTokens(lambda: ("token", expires), lambda: 1000.0)
    for _ in range(2):
        with pytest.raises(SaslAuthenticationError, match=said):
            tokens.token()
