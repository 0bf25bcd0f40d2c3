"""Steps of a login that wait for others: a token from its issuer, a ticket from Kerberos."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kprod.errors import KprodError
from kprod.security.steps import Conversation, Message, respond


class ThreadedSteps:
    """Works each message out in a daemon thread of its own, then calls ``wake`` from there.

    ``begin`` and ``take`` are for one thread. A step nobody waits for any more ends by itself.
    """

    def __init__(self, conversation: Conversation, wake: Callable[[], None]) -> None:
        self._conversation = conversation
        self._wake = wake
        self._found: Message | KprodError | None = None  # set once per step, by its thread

    def begin(self, challenge: bytes | None) -> None:
        """See ``Steps``."""
        self._found = None
        threading.Thread(
            target=self._work, args=(challenge,), name="kprod-login", daemon=True
        ).start()

    def _work(self, challenge: bytes | None) -> None:
        found: Message | KprodError
        try:
            found = respond(self._conversation, challenge)
        except KprodError as error:
            found = error
        self._found = found
        self._wake()

    def take(self) -> Message | None:
        """See ``Steps``."""
        found = self._found
        if isinstance(found, KprodError):
            raise found
        return found
