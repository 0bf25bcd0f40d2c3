"""How a thread of the broker waits for sockets, and how other threads wake it."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading

from kprod.broker.descriptors import OpenFile, closed_in_children


class Bell:
    """Wakes a thread that waits with a selector, in which ``fileno`` is registered. Thread-safe."""

    def __init__(self) -> None:
        self._out, self._in = map(OpenFile, os.pipe())
        os.set_blocking(self._out.fd, False)
        os.set_blocking(self._in.fd, False)
        # Held while the descriptors are written to or closed: a closed one may be another file's.
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """Return the descriptor to wait for. It is readable from ``ring`` to ``clear``."""
        return self._out.fd

    def ring(self) -> None:
        """Wake the thread. Does nothing once the bell is closed."""
        with self._lock, contextlib.suppress(OSError):  # full of wake-ups already, or closed
            os.write(self._in.fd, b"!")

    def clear(self) -> None:
        """Undo ``ring``. Called by the thread that was woken."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._out.fd, 4096)

    def close(self) -> None:
        """Close the descriptors. Idempotent."""
        with self._lock:
            self._out.close()
            self._in.close()


def new_selector() -> selectors.BaseSelector:
    """Return the system's best selector; with ``KPROD_PORTABLE=1`` one that uses poll(2)."""
    portable = os.environ.get("KPROD_PORTABLE", "0") not in ("", "0")
    return closed_in_children(selectors.PollSelector() if portable else selectors.DefaultSelector())
