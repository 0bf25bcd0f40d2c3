"""A list that cannot grow leaves its items as they are: each belongs to somebody else, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from kprod.buffer.callbacks import Callback
from kprod.buffer.delivery import BatchDelivery
from kprod.errors import BrokerError
from kprod.metrics import ProducerMetrics
from kprod.types import TopicPartition
from kprod_ext import ArrowSource, batch_size_upper_bound
from kprod_ext.futures import FutureRecordMetadata
from tests.support.failing_malloc import LISTS_CRASH, keep_code

hooks = pytest.importorskip("_testcapi", reason="this Python comes without its hooks into malloc")

pytestmark = [
    # No allocation fails for threads that other tests left behind: a forked child has one thread.
    pytest.mark.alone,
    pytest.mark.skipif(LISTS_CRASH, reason="this Python crashes where a list finds no memory"),
]

ALLOCATIONS = 60


def after_every_failure(work: Callable[[], Any]) -> int:
    """How often ``work`` had no memory, as one allocation after the other failed.

    Others take what was let go of: nobody may still have it, nor two of them the same.
    """
    keep_code()
    failures = 0
    others: list[Any] = []
    for failing in range(ALLOCATIONS):
        try:
            hooks.set_nomemory(failing, failing + 1)
            work()
        except MemoryError:
            failures += 1
        finally:
            hooks.remove_mem_hooks()
        others += [{}, *((size,) * size for size in range(1, 10))]
    assert len(set(map(id, others))) == len(others)
    return failures


def test_headers() -> None:
    headers: Any = [(f"name-{n}", b"%d" % n) for n in range(30)]
    whole = batch_size_upper_bound(None, None, headers)
    assert after_every_failure(lambda: batch_size_upper_bound(None, None, headers)) >= 2
    assert batch_size_upper_bound(None, None, headers) == whole


def test_columns() -> None:
    source = ArrowSource(pa.table({f"column-{n}": [b""] for n in range(9)}))
    columns = source.columns()
    assert after_every_failure(source.columns) > 5
    assert source.columns() == columns


def test_metrics() -> None:
    metrics = ProducerMetrics()
    metrics.acknowledged("t", 1, 100, 90, 90, 0.1)
    metrics.answered(1, 0.1, 0)
    metrics.mark(1.0)
    groups = metrics.groups(2.0)
    assert after_every_failure(lambda: metrics.groups(2.0)) > 5
    assert metrics.groups(2.0) == groups


class AtHand:
    """Callbacks that are run by whoever asks."""

    def __init__(self) -> None:
        self.waiting: list[Callback] = []

    def leave(self, callbacks: list[Callback]) -> bool:
        self.waiting += callbacks
        return True


@pytest.mark.parametrize("succeeds", [True, False])
def test_what_callbacks_are_told(succeeds: bool) -> None:
    told: list[tuple[Any, ...]] = []
    callbacks: Any = AtHand()
    delivery = BatchDelivery(TopicPartition("t", 0), lambda: None, callbacks)
    future = FutureRecordMetadata(delivery, 0, 5, 1, 1, 0)
    add = future.add_callback if succeeds else future.add_errback
    add(lambda *arguments: told.append(arguments), "a", "b")
    if succeeds:
        delivery.succeed(7, -1)
    else:
        delivery.fail(BrokerError(7, "t-0"))
    (tell,) = callbacks.waiting
    assert after_every_failure(tell) > 0
    assert len(told) > 5
    for *first, outcome in told:
        assert first == ["a", "b"]
        assert outcome.offset == 7 if succeeds else isinstance(outcome, BrokerError)
