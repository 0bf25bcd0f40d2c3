"""The writer produces known batches, byte for byte."""

from __future__ import annotations

import pytest

from tests.golden.record_batches import GOLDEN_BATCHES, GoldenBatch
from tests.support.batch_writing import as_produced, write_batch


@pytest.mark.parametrize("golden", GOLDEN_BATCHES, ids=lambda golden: golden.name)
def test_the_writer_produces_exactly_these_bytes(golden: GoldenBatch) -> None:
    assert write_batch(golden.records, **golden.state) == as_produced(golden.data)
