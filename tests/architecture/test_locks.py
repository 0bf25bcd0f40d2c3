"""What ``with`` takes is a ``kprod.lock.Lock``: any other lock may stay held for ever."""

from __future__ import annotations

from tests.architecture.sources import ROOT, files

OF_ITS_OWN = {
    "kprod/latch.py",  # a bell, which another thread rings
    "kprod/sender/leadership.py",  # taken while signals are held
}


def test_locks_of_the_client_survive_a_signal_handler_that_raises() -> None:
    names = {str(path.relative_to(ROOT)): path for path in files(".py", folders=("kprod",))}
    makers = {name for name, path in names.items() if "threading.Lock()" in path.read_text()}
    assert {name for name in makers if not name.startswith("kprod/broker/")} == OF_ITS_OWN
