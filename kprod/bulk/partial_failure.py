"""A bulk call that ends early: the error says what was queued until then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kprod.bulk.delivery import BulkDelivery


@contextmanager
def accounted(delivery: BulkDelivery, finish: Callable[[], object]) -> Iterator[None]:
    """Call ``finish`` at the end in any case; give an exception ``accepted`` and ``delivery``.

    The exception keeps its type: an application that catches Ctrl-C, or an exception of its own
    iterator, still does. When an exception interrupts ``finish``, ``finish`` is called again.
    """
    try:
        yield
        finish()
    except BaseException as error:
        finish()
        with suppress(AttributeError, TypeError):  # one with slots has no room for them
            error.accepted, error.delivery = len(delivery), delivery  # type: ignore[attr-defined]
            if len(delivery):
                error.add_note(
                    f"the first {len(delivery)} records were queued before that:"
                    " error.delivery tells what becomes of them"
                )
        raise
