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
