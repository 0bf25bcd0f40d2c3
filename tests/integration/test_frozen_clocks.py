"""Records are stored while an application's test freezes Python's clock."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from freezegun import freeze_time

from tests.support import apis
from tests.support.programs import run_python

PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize("freeze", [freeze_time(PAST), time_machine.travel(PAST, tick=False)])
@pytest.mark.parametrize("api", apis.SENDING)
async def test_a_lingering_record_is_stored_while_the_clock_is_frozen(
    servers: str, api: Callable[[str], Any], freeze: Any
) -> None:
    with freeze:
        async with api(servers):  # sends a record and waits for it
            pass


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
def test_a_record_is_stored_if_kprod_is_imported_while_the_clock_is_frozen(freeze: str) -> None:
    ran = run_python("-c", FROZEN_BEFORE_THE_IMPORT.format(freeze=freeze))
    assert ran.stdout.strip() == "0"
