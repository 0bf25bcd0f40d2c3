"""A map that is read without a lock while others write to it."""

from __future__ import annotations

import threading

import pytest

from kprod.buffer.copy_on_write_map import CopyOnWriteMap


def test_a_maker_that_fails_leaves_the_map_as_it_was() -> None:
    entries = CopyOnWriteMap()
    with pytest.raises(ZeroDivisionError):
        entries.get_or_create("a", lambda: 1 // 0)
    assert entries.get("a") is None
    assert entries.get_or_create("a", lambda: 1) == 1


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
    found: list[list[object]] = []

    def want() -> None:
        start.wait()
        found.append([entries.get_or_create(number, object) for number in range(200)])

    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(entries) == 200
    assert all(mine == found[0] for mine in found)
