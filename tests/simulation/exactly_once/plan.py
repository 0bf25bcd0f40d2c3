"""What an application does with one transaction and knows of it, and what happens around it.

Plans and happenings are values. Their ``repr`` is Python: a failing run can be pasted into a test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kprod.types import TopicPartition
from tests.simulation.broker_actions import Disturb
from tests.simulation.exactly_once.brokers import COORDINATION, OFFSETS
from tests.simulation.exactly_once.setup import TransactionSetup
from tests.simulation.history import Sent

if TYPE_CHECKING:
    from tests.simulation.exactly_once.world import TransactionWorld


@dataclass(frozen=True, slots=True)
class Burst:
    """``pause`` seconds, then records for one topic; ``spread``: partition after partition."""

    pause: float
    topic: int
    records: int
    size: int = 20
    spread: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """One transaction.

    ``end``: "commit", "abort", or "raise", which a block turns into an abort. ``timeout`` is that
    of every call. ``fate`` of the producer before the end: "kill" drops it, "freeze" lets the next
    one take over, and the old one goes on after that; "close" closes it in the middle.
    """

    before: float = 0.0
    bursts: tuple[Burst, ...] = (Burst(0.0, 0, 1),)
    offsets: bool = False
    stale: bool = False  # the member that commits the offsets was expelled
    end: str = "commit"
    block: bool = False
    timeout: float | None = None
    fate: str = ""


class Happening(Protocol):
    """``at`` is seconds after the start."""

    @property
    def at(self) -> float: ...

    def apply(self, world: TransactionWorld) -> None: ...


COORDINATOR, GROUP_COORDINATOR = -1, -2
"""In the place of a node's number: whichever has that office then."""


@dataclass(frozen=True, slots=True)
class MoveCoordinator:
    """``group``: that of the group, else that of the transactions."""

    at: float
    to: int
    group: bool = False

    def apply(self, world: TransactionWorld) -> None:
        world.brokers.lead(OFFSETS if self.group else COORDINATION, self.to)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The cluster's ``transaction.version`` becomes 2; brokers say so to new connections."""

    at: float

    def apply(self, world: TransactionWorld) -> None:
        world.brokers.transactions.set_version(2)


@dataclass(frozen=True, slots=True)
class Script:
    """Everything that determines one run. ``gentle``: nothing happens that may cost a commit."""

    seed: int
    setup: TransactionSetup
    plans: tuple[Plan, ...]
    happenings: tuple[Happening, ...] = ()
    gentle: bool = False

    @property
    def faults_end_at(self) -> float:
        """When no request meets a fault any more; a moment after the last happening."""
        return max((each.at for each in self.happenings), default=0.0) + 0.5

    @property
    def calm_at(self) -> float:
        """When all is well: requests that were held up until then have reached their broker."""
        held_up = (
            each.fault.seconds
            for each in self.happenings
            if isinstance(each, Disturb) and each.fault.how == "stall"
        )
        return self.faults_end_at + max(held_up, default=0.0)


OPEN, COMMITTED, ABORTED, UNKNOWN = "open", "committed", "aborted", "unknown"


@dataclass(eq=False, slots=True)
class Told:
    """One transaction. ``fate``: OPEN until the application was told how it has ended.

    ``asked``: a commit was asked for. ``offset``: the group's place that moves with it.
    """

    number: int
    producer: int
    sent: list[Sent] = field(default_factory=list)
    offset: TopicPartition | None = None
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
