"""What an application knows of its transactions."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.history import Sent

OPEN, COMMITTED, ABORTED, UNKNOWN = "open", "committed", "aborted", "unknown"


@dataclass(eq=False, slots=True)
class Told:
    """One transaction. ``fate``: OPEN until the application was told how it has ended.

    ``asked``: a commit was asked for. ``offset``: the group's place that moves with it.
    """

    number: int
    producer: int
    sent: list[Sent] = field(default_factory=list)
    offset: int | None = None
    asked: bool = False
    fate: str = OPEN

    @property
    def uids(self) -> list[int]:
        return [sent.uid for sent in self.sent]

    def ends(self, fate: str) -> None:
        """The first word on it counts."""
        if self.fate == OPEN:
            self.fate = fate

    def given_up(self) -> None:
        """No more will be heard of it: nobody can say whether it was committed, if asked for."""
        self.ends(UNKNOWN if self.asked else ABORTED)
