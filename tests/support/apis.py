"""A producer of each API, which has sent one record to topic "t"."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kprod.aio
import kprod.confluent
import kprod.kafka  # before kafka itself, whose import warns
from kprod.testing import RecordingProducer


@asynccontextmanager
async def native(servers: str) -> AsyncIterator[Any]:
    with kprod.KafkaProducer(bootstrap_servers=servers, client_id="one") as producer:
        producer.send("t", b"v").get(60)
        yield producer


@asynccontextmanager
async def in_asyncio(servers: str) -> AsyncIterator[Any]:
    async with kprod.aio.Producer(bootstrap_servers=servers, client_id="one") as producer:
        await producer.send_and_wait("t", b"v")
        yield producer


@asynccontextmanager
async def kafka_python(servers: str) -> AsyncIterator[Any]:
    with kprod.kafka.KafkaProducer(bootstrap_servers=servers, client_id="one") as producer:
        producer.send("t", b"v").get(60)
        yield producer


@asynccontextmanager
async def confluent(servers: str) -> AsyncIterator[Any]:
    with kprod.confluent.Producer({"bootstrap.servers": servers, "client.id": "one"}) as producer:
        producer.produce("t", b"v")
        producer.flush(60)
        yield producer


@asynccontextmanager
async def confluent_serializing(servers: str) -> AsyncIterator[Any]:
    conf = {"bootstrap.servers": servers, "client.id": "one"}
    with kprod.confluent.SerializingProducer(conf) as producer:
        producer.produce("t", value=b"v")
        producer.flush(60)
        yield producer


@asynccontextmanager
async def confluent_asyncio(servers: str) -> AsyncIterator[Any]:
    conf = {"bootstrap.servers": servers, "client.id": "one"}
    async with kprod.confluent.AIOProducer(conf, batch_size=1) as producer:
        await (await producer.produce("t", b"v"))
        yield producer


@asynccontextmanager
async def aiokafka(servers: str) -> AsyncIterator[Any]:
    async with kprod.aio.AIOKafkaProducer(bootstrap_servers=servers, client_id="one") as producer:
        await producer.send_and_wait("t", b"v")
        yield producer


@asynccontextmanager
async def recording(servers: str) -> AsyncIterator[Any]:
    with RecordingProducer(client_id="one") as producer:
        producer.send("t", b"v")
        yield producer


SENDING = [native, in_asyncio, kafka_python]
SENDING += [confluent, confluent_serializing, confluent_asyncio, aiokafka]
