"""A fake schema registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.schema_registry import FakeRegistry


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake:
        yield fake
