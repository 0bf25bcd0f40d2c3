"""A lock that is given back whatever memory there is."""

from __future__ import annotations

import threading

import pytest

from kprod_ext import Mutex

hooks = pytest.importorskip("_testcapi", reason="this Python comes without its hooks into malloc")

MORE_THAN_A_FREE_LIST = 5000


def test_one_thread_at_a_time_is_within_it() -> None:
    mutex = Mutex()
    counted = [0]

    def count() -> None:
        for _ in range(2000):
            with mutex:
                counted[0] = sum((counted[0], 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted == [8000]


def test_an_error_gives_it_back() -> None:
    mutex = Mutex()
    with pytest.raises(KeyError), mutex:
        raise KeyError
    with mutex:
        pass


@pytest.mark.alone
def test_it_is_given_back_without_memory() -> None:
    mutex = Mutex()
    # Python keeps tuples for later calls: let none of this length be left.
    held = [tuple([number] * 3) for number in range(MORE_THAN_A_FREE_LIST)]
    try:
        with mutex:
            hooks.set_nomemory(0)
    finally:
        hooks.remove_mem_hooks()
    with mutex:  # waits for ever if it is still held
        assert len(held) == MORE_THAN_A_FREE_LIST
