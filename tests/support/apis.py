"""For each API a producer that has sent one record to topic "t"."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import kprod.aio
import kprod.confluent
import kprod.kafka  # before kafka, whose import warns
from kprod.testing import RecordingProducer

Api = Callable[[str], AbstractAsyncContextManager[Any]]


def _named(kind: Any, api: Api) -> Api:
    api.__name__ = f"{kind.__module__}.{kind.__name__}"  # for the test id
    return api


def _with_futures(kind: Any) -> Api:
    @asynccontextmanager
    async def api(servers: str) -> AsyncIterator[Any]:
        with kind(bootstrap_servers=servers, client_id="one") as producer:
            producer.send("t", b"v").get(60)
            yield producer

    return _named(kind, api)


def _in_asyncio(kind: Any) -> Api:
    @asynccontextmanager
    async def api(servers: str) -> AsyncIterator[Any]:
        async with kind(bootstrap_servers=servers, client_id="one") as producer:
            await producer.send_and_wait("t", b"v")
            yield producer

    return _named(kind, api)


def _with_reports(kind: Any) -> Api:
    @asynccontextmanager
    async def api(servers: str) -> AsyncIterator[Any]:
        with kind({"bootstrap.servers": servers, "client.id": "one"}) as producer:
            producer.produce("t", value=b"v")
            producer.flush(60)
            yield producer

    return _named(kind, api)


@asynccontextmanager
async def confluent_asyncio(servers: str) -> AsyncIterator[Any]:
    conf = {"bootstrap.servers": servers, "client.id": "one"}
    async with kprod.confluent.AIOProducer(conf, batch_size=1) as producer:
        await (await producer.produce("t", b"v"))
        yield producer


@asynccontextmanager
async def recording(servers: str) -> AsyncIterator[Any]:
    with RecordingProducer(client_id="one") as producer:
        producer.send("t", b"v")
        yield producer


native = _with_futures(kprod.KafkaProducer)
kafka_python = _with_futures(kprod.kafka.KafkaProducer)
in_asyncio = _in_asyncio(kprod.aio.Producer)
aiokafka = _in_asyncio(kprod.aio.AIOKafkaProducer)
confluent = _with_reports(kprod.confluent.Producer)
confluent_serializing = _with_reports(kprod.confluent.SerializingProducer)
SENDING = [native, in_asyncio, kafka_python]
SENDING += [confluent, confluent_serializing, confluent_asyncio, aiokafka]
