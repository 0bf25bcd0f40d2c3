"""Fixtures for tests of batches; records that are still queued at their end are failed."""

from __future__ import annotations

import pytest

from kprod.buffer.delivery import BatchDelivery
from tests.support.sender_rig import records_end
from tests.unit.buffer.deliveries import new_delivery

__all__ = ["records_end"]


@pytest.fixture
def delivery() -> BatchDelivery:
    return new_delivery()
