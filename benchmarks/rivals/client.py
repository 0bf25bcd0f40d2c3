"""What is measured of every client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from benchmarks.rivals.settings import Settings


class Client(ABC):
    """A producer with one way of sending. Thread: one.

    ``prepare`` is called once, outside of what is timed, with everything that will be sent: a
    client may bring it into the form its call takes.
    """

    def __init__(self, settings: Settings) -> None:
        """Open it."""
        self.settings = settings

    @classmethod
    def exists(cls) -> bool:
        """Whether what is installed has the call; not every version of a client has each."""
        return True

    def prepare(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """Get ready to send these; ``keys``, if any, has one for every value."""
        self.values = values
        self.keys = keys

    @abstractmethod
    def send(self) -> None:
        """Send what was prepared; return when every record has its outcome. Raises if one fails."""

    def send_and_wait(self, value: bytes) -> None:
        """Send one record; return when it is acknowledged."""
        raise NotImplementedError(f"{type(self).__name__} is not measured alone")

    @abstractmethod
    def close(self) -> None:
        """End it."""
