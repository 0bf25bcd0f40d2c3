"""A broker of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kprod.broker import EmbeddedBroker


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1}) as made:
        yield made
