"""OAuth tokens from a coroutine of the application, run in its own loop."""

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
    """As in aiokafka's documentation."""

    def __init__(self) -> None:
        self.loops: list[asyncio.AbstractEventLoop] = []

    async def token(self) -> str:
        await asyncio.sleep(0)
        self.loops.append(asyncio.get_running_loop())
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


@pytest.mark.parametrize("only_function", [False, True])
@pytest.mark.parametrize("producer_class", [AIOKafkaProducer, Producer])
async def test_a_token_coroutine_runs_in_the_applications_loop(
    broker: EmbeddedBroker, producer_class: Callable[..., Any], only_function: bool
) -> None:
    provider = Provider()
    given = provider.token if only_function else provider
    async with producer_class(**options(broker, given)) as producer:
        await asyncio.wait_for(producer.send_and_wait("t", b"v"), 30)
    assert set(provider.loops) == {asyncio.get_running_loop()}


def test_a_producer_without_a_running_loop_fetches_tokens_in_its_own(
    broker: EmbeddedBroker,
) -> None:
    provider = Provider()
    spelled = {name.replace("_", "."): value for name, value in options(broker, provider).items()}
    producer = Producer(**spelled)

    async def main() -> None:
        async with producer:
            await asyncio.wait_for(producer.send_and_wait("t", b"v"), 30)

    asyncio.run(main())
    assert provider.loops


async def test_an_error_of_the_token_provider_fails_the_login_without_its_message(
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


def test_fetching_a_token_in_a_closed_loop_raises() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(SaslAuthenticationError, match="closed"):
        LoopTokens(Provider(), loop).token()
