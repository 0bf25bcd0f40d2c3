"""A map that is read without a lock while others write to it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from kprod.buffer.copy_on_write_map import CopyOnWriteMap


def test_a_reader_is_not_disturbed_by_later_entries() -> None:
    entries = CopyOnWriteMap()
    for number in range(3):
        entries.get_or_create(number, lambda: 0)
    seen = []
    for number in entries:
        entries.get_or_create(number + 100, lambda: 0)
        seen.append(number)
    assert seen == [0, 1, 2]


def test_threads_that_want_the_same_entry_get_the_same() -> None:
    entries = CopyOnWriteMap()
    start = threading.Barrier(4)

    def want(_: int) -> list[object]:
        start.wait()
        return [entries.get_or_create(number, object) for number in range(200)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(want, range(4)))
    assert len(entries) == 200
    assert all(mine == found[0] for mine in found)
