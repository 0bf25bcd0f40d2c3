"""A broker that no test changes, and an address where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kprod.broker import EmbeddedBroker
from tests.support.ports import free_port


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(topics={"t": 3}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def nobody() -> str:
    return f"127.0.0.1:{free_port()}"
