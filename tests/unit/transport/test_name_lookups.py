"""Lookups of names: one at a time for each, and none kept once it is done."""

from __future__ import annotations

import gc
import threading

from kprod.transport.tcp import Address, NameLookup, NameLookups

LONG = 20.0


def test_lookups_of_ever_new_names_leave_nothing_behind() -> None:
    answered = threading.Semaphore(0)
    lookups = NameLookups(lambda host, port: [Address(2, (host, port))], answered.release)
    for number in range(50):
        lookups.ask(f"agent-{number}", 9092)
        assert answered.acquire(timeout=LONG)
    gc.collect()
    assert sum(isinstance(found, NameLookup) for found in gc.get_objects()) <= 2


def test_a_name_that_is_being_looked_up_is_asked_once() -> None:
    go_on, answered = threading.Event(), threading.Semaphore(0)

    def resolve(host: str, port: int) -> list[Address]:
        if host == "slow":
            assert go_on.wait(LONG)
        return [Address(2, (host, port))]

    lookups = NameLookups(resolve, answered.release)
    slow = lookups.ask("slow", 9092)
    quick = lookups.ask("quick", 9092)
    assert answered.acquire(timeout=LONG)
    assert quick.done
    assert lookups.ask("other", 9092) is not slow
    assert lookups.ask("slow", 9092) is slow
    go_on.set()
