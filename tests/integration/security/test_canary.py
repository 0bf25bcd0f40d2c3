"""Secrets that are put through everything appear nowhere."""

from __future__ import annotations

import logging
import pickle
import traceback
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.config import ProducerConfig
from kprod.errors import KprodError
from tests.support.guarded_broker import PASSWORD, GuardedBroker
from tests.support.local_proxies import LocalProxy

CANARY = "canary-5ecret-Zx9"


@pytest.mark.parametrize("protection", ["plain", "mtls"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("right", [True, False])
def test_secrets_appear_nowhere(
    right: bool,
    mechanism: str,
    protection: str,
    guarded: GuardedBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = PASSWORD if right else CANARY
    options = guarded.options(protection, mechanism)
    if mechanism == "OAUTHBEARER":
        secret = options["sasl_oauth_token_provider"]() if right else CANARY
        options["sasl_oauth_token_provider"] = lambda: secret
    else:
        options["sasl_plain_password"] = secret
    said: list[Any] = [repr(ProducerConfig.from_options(options))]
    with caplog.at_level(logging.DEBUG):
        producer = KafkaProducer(max_block_ms=20_000, **options)
        try:
            said.append(producer.send("t", b"x").get(timeout=20))
        except KprodError as error:
            shown = traceback.TracebackException.from_exception(error, capture_locals=True)
            kept = [line for line in shown.format() if "test_canary" not in line]
            said += [error, pickle.dumps(error), kept]
        said += [producer, producer.metrics(), producer.close()]
    text = "\n".join([repr(each) for each in said] + caplog.messages)
    assert secret not in text
    assert right == ("Error" not in repr(said[1]))


def test_the_password_of_a_proxy_appears_nowhere(
    guarded: GuardedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    options = guarded.options("tls", "PLAIN")
    with caplog.at_level(logging.DEBUG), LocalProxy(("user", CANARY)) as proxy:
        right: dict[str, Any] = {"proxy_url": f"socks5://user:{CANARY}@127.0.0.1:{proxy.port}"}
        with KafkaProducer(**options, **right) as producer:
            producer.send("t", b"x").get(timeout=20)
        wrong: dict[str, Any] = {"proxy_url": f"socks5://user:{CANARY}x@127.0.0.1:{proxy.port}"}
        with (
            KafkaProducer(max_block_ms=2_000, **options, **wrong) as producer,
            pytest.raises(KprodError, match=r"by the proxy 127\.0\.0\.1") as raised,
        ):
            producer.send("t", b"x")
        config = ProducerConfig.from_options({**options, **wrong})
        assert CANARY not in f"{raised.value} {raised.value.__cause__!r} {config!r}"
    assert CANARY not in caplog.text
