"""Tokens are kept, replaced ahead of time, and used until their end while there is no other."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kprod.errors import SaslAuthenticationError
from kprod.security.oauthbearer import AHEAD, PATIENCE, ProvidedTokens

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


def test_a_token_that_does_not_tell_its_end_is_asked_for_each_time() -> None:
    asked: list[Any] = []

    def provider() -> str:
        asked.append(None)
        return f"token-{len(asked)}"

    tokens = ProvidedTokens(provider)
    assert [tokens.token(), tokens.token()] == ["token-1", "token-2"]


@pytest.mark.parametrize("expires", [float("nan"), 999.0, True])
def test_a_token_that_never_ends_or_has_ended_is_refused(expires: float) -> None:
    """One that expires at no time would never be replaced."""
    tokens = ProvidedTokens(lambda: ("token", expires), lambda: 1000.0)
    for _ in range(2):
        with pytest.raises(SaslAuthenticationError, match="already expired"):
            tokens.token()


def test_an_end_in_milliseconds_is_refused() -> None:
    """Taken for seconds, it would keep the token in use for ever; AWS's signer tells it so."""
    tokens = ProvidedTokens(lambda: ("token", 1_800_000_000_000), lambda: 1_799_999_000.0)
    with pytest.raises(SaslAuthenticationError, match="divide it by 1000"):
        tokens.token()


def test_a_token_without_an_end_stays_in_use() -> None:
    asked = iter([("token", float("inf"))])
    tokens = ProvidedTokens(lambda: next(asked), lambda: 1000.0)
    assert [tokens.token(), tokens.token()] == ["token", "token"]
