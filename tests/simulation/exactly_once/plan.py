"""The application's plan and knowledge of each transaction, and the faults around it.

Plans and incidents are values. Their ``repr`` is Python: a failing run can be pasted into a test.
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
    """``pause`` seconds, then records for one topic; ``spread``: over its partitions."""

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


class Incident(Protocol):
    """``at`` is seconds after the start."""

    @property
    def at(self) -> float: ...

    def apply(self, world: TransactionWorld) -> None: ...


COORDINATOR, GROUP_COORDINATOR = -1, -2
"""Used as a node number: the node that is coordinator at that time."""


@dataclass(frozen=True, slots=True)
class MoveCoordinator:
    """``group``: the group coordinator, else the transaction coordinator."""

    at: float
    to: int
    group: bool = False

    def apply(self, world: TransactionWorld) -> None:
        world.brokers.lead(OFFSETS if self.group else COORDINATION, self.to)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The cluster's ``transaction.version`` becomes 2; only new connections see it."""

    at: float

    def apply(self, world: TransactionWorld) -> None:
        world.brokers.transactions.set_version(2)


@dataclass(frozen=True, slots=True)
class Script:
    """Everything that determines one run. ``gentle``: no fault may make a commit fail."""

    seed: int
    setup: TransactionSetup
    plans: tuple[Plan, ...]
    incidents: tuple[Incident, ...] = ()
    gentle: bool = False

    @property
    def faults_end_at(self) -> float:
        """When faults stop being injected: shortly after the last incident."""
        return max((each.at for each in self.incidents), default=0.0) + 0.5

    @property
    def calm_at(self) -> float:
        """When delayed requests have reached their broker as well."""
        held_up = (
            each.fault.seconds
            for each in self.incidents
            if isinstance(each, Disturb) and each.fault.how == "stall"
        )
        return self.faults_end_at + max(held_up, default=0.0)


OPEN, COMMITTED, ABORTED, UNKNOWN = "open", "committed", "aborted", "unknown"


@dataclass(eq=False, slots=True)
class AppTransaction:
    """What the application knows of one transaction. ``fate``: OPEN until it has ended.

    ``asked``: a commit was requested. ``offset``: the partition whose offset it commits.
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
        """Only the first report counts."""
        if self.fate == OPEN:
            self.fate = fate

    def given_up(self) -> None:
        """The outcome will never be known; a requested commit may have happened."""
        self.ends(UNKNOWN if self.asked else ABORTED)
