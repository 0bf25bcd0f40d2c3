"""Tests of applications that freeze Python's clock: records are stored all the same"""

from __future__ import annotations

import asyncio
import datetime
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from freezegun import freeze_time

from kprod import KafkaProducer, aio, confluent
from kprod.broker import EmbeddedBroker

PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def by_native(servers: str) -> int:
    with KafkaProducer(bootstrap_servers=servers, linger_ms=20) as producer:
        return producer.send("frozen", b"value").get(30).offset


def by_confluent(servers: str) -> Any:
    producer = confluent.Producer({"bootstrap.servers": servers, "linger.ms": 20})
    offsets: list[Any] = []
    producer.produce("frozen", b"value", on_delivery=lambda _, m: offsets.append(m.offset()))
    assert producer.poll(30) == 1
    producer.close()
    return offsets[0]


def by_confluent_aio(servers: str) -> Any:
    async def send() -> Any:
        producer = confluent.AIOProducer({"bootstrap.servers": servers, "linger.ms": 20})
        message = await (await producer.produce("frozen", b"value"))
        await producer.close()
        return message.offset()

    return asyncio.run(send())


def by_aio(servers: str) -> Any:
    async def send() -> Any:
        async with aio.Producer(bootstrap_servers=servers, linger_ms=20) as producer:
            return (await producer.send_and_wait("frozen", b"value")).offset

    return asyncio.run(send())


APIS = (by_native, by_confluent, by_confluent_aio, by_aio)


@pytest.mark.parametrize("freeze", [freeze_time(PAST), time_machine.travel(PAST, tick=False)])
@pytest.mark.parametrize("send", APIS)
def test_a_record_that_lingers_is_stored(send: Callable[[str], object], freeze: Any) -> None:
    with EmbeddedBroker(topics={"frozen": 1}) as broker, freeze:
        assert send(broker.bootstrap_servers) == 0


FROZEN_BEFORE_THE_IMPORT = """
import datetime

past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
{freeze}
frozen = datetime.datetime
from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker

assert datetime.datetime is frozen
with EmbeddedBroker(topics={{"frozen": 1}}) as broker:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=20) as producer:
        print(producer.send("frozen", b"value").get(60).offset)
    assert [record.value for record in broker.records("frozen")] == [b"value"]
"""


@pytest.mark.parametrize(
    "freeze",
    [
        "from freezegun import freeze_time; freeze_time(past).start()",
        "from time_machine import travel; travel(past, tick=False).start()",
    ],
)
def test_a_record_is_stored_by_a_kprod_that_was_imported_then(freeze: str) -> None:
    command = [sys.executable, "-c", FROZEN_BEFORE_THE_IMPORT.format(freeze=freeze)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.stdout.strip() == "0", ran.stderr
