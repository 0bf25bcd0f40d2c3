"""What a client has of ``threading`` that a thread waits for, and why it is never left held.

A ``with`` statement on a lock of ``threading``, and the one inside an Event or a Condition, may
leave it held for ever, where Ctrl-C or a lack of memory comes at the wrong moment. So Python code
has a ``kprod.lock.Lock`` or a ``kprod.latch.Latch``, but for the places below.
"""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT, files

MADE = re.compile(r"\bthreading\.(?:R?Lock|Event|Condition|(?:Bounded)?Semaphore|Barrier|Timer)\(")
IMPORTED = re.compile(r"\b(?:from threading c?import|import threading as)\b")

BELL = "a bell: one thread takes it by name, another one releases it by name"
REASONS = {
    "kprod/confluent/credentials.py": BELL,
    "kprod/latch.py": BELL,
    "kprod/sender/loop.py": "taken and released by name, while signals are held",
    "kprod/security/http_request.py": "a Timer's Event: for the request's thread and its own only",
    "kprod_ext/buffer_pool.pyx": BELL,
    "kprod_ext/confluent.pyx": BELL,
    "kprod_ext/lock.pyx": "inside the lock itself; compiled code enters and leaves it in one step",
}
BROKER = "kprod/broker/"
"""Its threads are its own: what breaks off there costs a test its broker, no producer a record."""


def _sources() -> dict[str, str]:
    found = files(".py", ".pyx", ".pxd", folders=("kprod", "kprod_ext"))
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in found}
    return {name: text for name, text in texts.items() if not name.startswith(BROKER)}


def test_each_lock_of_threading_has_a_reason() -> None:
    assert {name for name, text in _sources().items() if MADE.search(text)} == set(REASONS)


def test_no_lock_of_threading_goes_by_another_name() -> None:
    assert [name for name, text in _sources().items() if IMPORTED.search(text)] == []
