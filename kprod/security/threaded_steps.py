"""Login steps that block, for example because they wait for a token or a Kerberos ticket."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from kprod.errors import KprodError
from kprod.lock import Lock
from kprod.security.steps import Conversation, Message, not_computed, respond

MOST_THREADS = 32
"""Limit of threads per producer: a token issuer may hang while connections are retried."""
MOST_WAITING = 1000
"""Limit of waiting steps. The oldest are dropped: their connections have long ended."""


class StepThreads:
    """Runs steps in at most ``MOST_THREADS`` daemon threads. Further steps are queued.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # guards both
        self._running = 0
        self._waiting: deque[Callable[[], None]] = deque(maxlen=MOST_WAITING)

    def run(self, step: Callable[[], None]) -> None:
        """Run the step in a new thread or, if ``MOST_THREADS`` are running, queue it.

        Raises RuntimeError if no thread can start. This step is then not queued. The existing
        threads still run the steps that are already queued.
        """
        with self._lock:
            if self._running >= MOST_THREADS:
                self._waiting.append(step)
                return
            self._running += 1
        try:
            threading.Thread(
                target=self._work, args=(step,), name="kprod-login", daemon=True
            ).start()
        except BaseException:
            with self._lock:
                self._running -= 1
            raise

    def _work(self, step: Callable[[], None]) -> None:
        following: Callable[[], None] | None = step
        while following is not None:
            try:
                following()
            finally:
                following = self._has_ended()

    def _has_ended(self) -> Callable[[], None] | None:
        """The next step for a thread after a step; None if the thread is no longer needed."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            return None


class ThreadedSteps:
    """Computes each message in one of ``threads``, which then calls ``wake``.

    Only one thread may call ``begin`` and ``take``. If the login is abandoned, the running step
    continues to its end.
    """

    def __init__(
        self, conversation: Conversation, wake: Callable[[], None], threads: StepThreads
    ) -> None:
        self._threads = threads
        self._conversation = conversation
        self._wake = wake
        self._found: Message | KprodError | None = None  # set once per step, by its thread

    def begin(self, challenge: bytes | None) -> None:
        """See ``Steps``."""
        self._found = None
        self._threads.run(partial(self._work, challenge))

    def _work(self, challenge: bytes | None) -> None:
        found: Message | KprodError
        try:
            found = respond(self._conversation, challenge)
        except KprodError as error:
            found = error
        except BaseException as error:  # SystemExit or CancelledError of the application's code
            found = not_computed(error)
        self._found = found
        self._wake()

    def take(self) -> Message | None:
        """See ``Steps``."""
        found = self._found
        if isinstance(found, KprodError):
            raise found
        return found
