"""Tokens that a coroutine of the application fetches in its own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider

from kprod.aio import AIOKafkaProducer, Producer
from kprod.aio.loop_threads import LoopTokens
from kprod.broker import Authentication, EmbeddedBroker, make_listener
from kprod.errors import SaslAuthenticationError
from tests.support.guarded_broker import unsigned_token


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    """As aiokafka's documentation writes one."""

    def __init__(self) -> None:
        self.asked_in: list[asyncio.AbstractEventLoop] = []

    async def token(self) -> str:
        await asyncio.sleep(0)
        self.asked_in.append(asyncio.get_running_loop())
        return unsigned_token()

    def extensions(self) -> dict[str, str]:
        return {"traceId": "7"}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    login = Authentication(mechanisms=("OAUTHBEARER",))
    listener = make_listener("SASL", authentication=login)
    with EmbeddedBroker(listeners=[listener], topics={"t": 1}) as made:
        yield made


def options(broker: EmbeddedBroker, provider: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


@pytest.mark.parametrize("face", [AIOKafkaProducer, Producer])
async def test_a_coroutine_gives_tokens_in_the_applications_loop(
    broker: EmbeddedBroker, face: Callable[..., Any]
) -> None:
    provider = Provider()
    async with face(**options(broker, provider)) as producer:
        await asyncio.wait_for(producer.send_and_wait("t", b"v"), 30)
    assert set(provider.asked_in) == {asyncio.get_running_loop()}


def test_a_producer_made_outside_a_loop_asks_in_one_of_its_own(broker: EmbeddedBroker) -> None:
    provider = Provider()
    spelled = {name.replace("_", "."): value for name, value in options(broker, provider).items()}
    producer = Producer(**spelled)

    async def main() -> None:
        async with producer:
            await asyncio.wait_for(producer.send_and_wait("t", b"v"), 30)

    asyncio.run(main())
    assert provider.asked_in


async def test_a_function_is_a_provider_too(broker: EmbeddedBroker) -> None:
    async def token() -> str:
        return unsigned_token()

    async with AIOKafkaProducer(**options(broker, token)) as producer:
        await asyncio.wait_for(producer.send_and_wait("t", b"v"), 30)


async def test_a_provider_that_fails_fails_the_login_without_its_text(
    broker: EmbeddedBroker,
) -> None:
    class Broken(Provider):
        async def token(self) -> str:
            raise OSError("canary")

    producer = AIOKafkaProducer(**options(broker, Broken()), request_timeout_ms=5_000)
    with pytest.raises(Exception, match="OSError") as caught:
        await producer.start()
    await producer.stop()
    assert "canary" not in str(caught.value)


async def test_a_time_limit_of_the_providers_own_is_not_taken_for_ours() -> None:
    """As where aiohttp gives up on the issuer, long before a token is missed here."""

    class Slow(Provider):
        async def token(self) -> str:
            raise TimeoutError("the issuer")

    tokens = LoopTokens(Slow(), asyncio.get_running_loop())
    with pytest.raises(TimeoutError, match="the issuer"):
        await asyncio.to_thread(tokens.token)


def test_a_closed_loop_gives_no_tokens() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(SaslAuthenticationError, match="closed"):
        LoopTokens(Provider(), loop).token()
