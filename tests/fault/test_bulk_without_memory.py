"""A bulk call that runs out of memory: what it counts as queued is queued, and can be looked up."""

from __future__ import annotations

import gc
import sys

import pytest

from kprod.bulk.delivery import BulkDelivery
from kprod.bulk.writing import Accounted
from tests.property.test_bulk_writing import Sending, load
from tests.support.failing_malloc import LISTS_CRASH, keep_code
from tests.unit.buffer.accumulating import read

hooks = pytest.importorskip("_testcapi", reason="this Python comes without its hooks into malloc")

pytestmark = [
    pytest.mark.full,
    # No allocation fails for threads that other tests left behind: a forked child has one thread.
    pytest.mark.alone,
    pytest.mark.skipif(LISTS_CRASH, reason="this Python crashes where a list finds no memory"),
]

ALLOCATIONS = 600 if sys.version_info < (3, 14) else 400
"""More than the call makes: 598 with Python 3.11, 359 with 3.14."""
VALUES = [b"%04d" % n * (10 + n % 40) for n in range(180)]
BLOCK = 60


def after_the_failure_of(failing: range) -> bool:
    """Whether a call ran out of memory when these allocations failed, counted from its beginning.

    Checks what it had queued until then.
    """
    sending = Sending(1, memory=300)
    chunks = [load(VALUES[start : start + BLOCK]) for start in range(0, len(VALUES), BLOCK)]
    writing = sending.writing()
    delivery = BulkDelivery(writing.sent)
    failed = False
    try:
        with Accounted(delivery, writing.finish):
            gc.disable()  # without memory it would tell that it could not note what it did
            hooks.set_nomemory(failing.start, failing.stop)
            try:
                for chunk in chunks:
                    writing.write(chunk)
            finally:
                hooks.remove_mem_hooks()
                gc.enable()
    except (MemoryError, RuntimeError):  # Python's for one of its locks: "can't allocate lock"
        failed = True
    batches = sending.around.take_all()
    queued: dict[tuple[int, int], bytes | None] = {}
    for batch in batches:
        batch.close()
        values = [record.value for record in read(batch).records()]
        queued |= {(id(batch.delivery), n): value for n, value in enumerate(values)}
    located = [writing.sent.locate(n) for n in range(len(delivery))]
    found = [queued.pop((id(told), index), None) for told, index in located]
    assert found == VALUES[: len(found)]
    # One more may be queued that was not counted any more, and it is the next.
    assert list(queued.values()) == VALUES[len(found) : len(found) + len(queued)]
    assert len(queued) <= 1
    assert failed or len(found) == len(VALUES)
    del writing, chunks
    for batch in batches:
        batch.release()
    assert sending.around.used == 0
    return failed


@pytest.mark.parametrize("several", [1, 6, 20, 60])
def test_all_that_is_counted_is_queued(several: int) -> None:
    keep_code()
    failures = sum(
        after_the_failure_of(range(first, first + several)) for first in range(ALLOCATIONS)
    )
    assert failures > ALLOCATIONS // 2, "hardly any allocation failed: this proves nothing"
