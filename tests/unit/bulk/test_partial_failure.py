"""A bulk call that ends early says what was queued until then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kprod import TopicPartition
from kprod.buffer.delivery import BatchDelivery
from kprod.bulk.delivery import BulkDelivery
from kprod.bulk.writing import Accounted
from kprod_ext import SentRecords


class Finish:
    """Notes what is left, two records; the first so many calls are interrupted before."""

    def __init__(self, interrupted: int) -> None:
        self.calls = 0
        self.sent = SentRecords()
        self._interrupted = interrupted

    def __call__(self) -> None:
        self.calls += 1
        if self.calls <= self._interrupted:
            raise KeyboardInterrupt
        if not self.sent.count:
            batch = BatchDelivery(TopicPartition("t", 0), hurry=lambda: None)
            for index in range(2):
                self.sent.add(batch, index)


def divide() -> None:
    raise ArithmeticError


@pytest.mark.parametrize(
    ("act", "error", "interrupted"),
    [(divide, ArithmeticError, 0), (lambda: None, KeyboardInterrupt, 1)],
    ids=["within", "at the very end"],
)
def test_what_ends_a_call_early_has_its_handle(
    act: Callable[[], None], error: type[BaseException], interrupted: int
) -> None:
    finish = Finish(interrupted)
    delivery = BulkDelivery(finish.sent)
    with pytest.raises(error) as raised, Accounted(delivery, finish):
        act()
    assert (raised.value.accepted, raised.value.delivery) == (2, delivery)  # type: ignore[attr-defined]
    assert "the first 2 records were queued" in raised.value.__notes__[0]
