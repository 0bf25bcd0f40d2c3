"""The steps that the protocol of a shard asks for.

The protocol (``protocol``) is a generator of steps. A runner executes each step, and sends the
result back into the generator. If another attempt has taken over the transactional id, it throws
``Fenced`` into the generator. So one protocol runs with producers and with a model of the brokers.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kprod.exactly_once.errors import TransactionTooSlow
from kprod.exactly_once.marker import Marker, Ranges
from kprod.exactly_once.shard import Shard
from kprod.transactional.two_phase_commit import PreparedTransaction


class Fenced(Exception):
    """A newer producer has the transactional id: nothing of this one's can be committed.

    ``too_slow`` is set where the time-out of the transaction is over: then the coordinator itself
    has fenced the attempt, unless another attempt has taken over meanwhile.
    """

    def __init__(self, text: str, too_slow: TransactionTooSlow | None = None) -> None:
        super().__init__(text)
        self.too_slow = too_slow


@dataclass(frozen=True, slots=True)
class TakeOver:
    """InitProducerId: fence every other producer of this id, and end what it left open."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ReadMarker:
    """The marker of a group; answered by a Marker, or None.

    ``wait`` until no transaction can change it; else such a one is none.
    """

    group: str
    wait: bool = True


@dataclass(frozen=True, slots=True)
class WriteRows:
    """Begin a transaction, and store every row; answered by ``Written``."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class CommitMarkers:
    """Commit the transaction of this id with these markers in it, by their groups.

    Begin one if there is none.
    """

    transactional_id: str
    markers: tuple[tuple[str, Marker], ...]


@dataclass(frozen=True, slots=True)
class Prepare:
    """Put the marker into the open transaction of this id, and leave it prepared.

    Answered by a PreparedTransaction.
    """

    transactional_id: str
    group: str
    marker: Marker


@dataclass(frozen=True, slots=True)
class EndAll:
    """Commit or abort what is prepared, each by its producer id and epoch.

    Answered by a bool for each: False, when it was ended otherwise, or taken over.
    """

    transactions: tuple[PreparedTransaction, ...]
    committed: bool


@dataclass(frozen=True, slots=True)
class FenceAll:
    """Take over each of these ids, which aborts what is open, and leave them.

    A task may be writing still. By protocol 1 an EndTxn leaves it its epoch: it would go on in a
    new transaction, without the rows before.
    """

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListOpen:
    """List the open transactions of attempts at shards of the job.

    Answered by a list of PreparedTransaction. ``idle``: those too which an attempt has taken over
    without writing yet, as it may begin one, and that of the layout. ``if_possible``: none where
    brokers cannot list them, as those that ``delivery="atomic"`` does not write to.
    """

    job_name: str
    idle: bool = False
    if_possible: bool = False


@dataclass(frozen=True, slots=True)
class CheckTime:
    """Raise TransactionTooSlow when one has been open for half of its time-out."""

    transactions: tuple[PreparedTransaction, ...]


@dataclass(frozen=True, slots=True)
class CompareRows:
    """This attempt writes nothing more: raise RowsChanged unless its rows are the marker's."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of ``WriteRows``: the rows and bytes it was given, all of them stored.

    ``digest`` as in ``Marker``.
    """

    rows: int
    bytes: int
    digest: int | None = None
    ranges: Ranges = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The shard is done: ``marker`` says what it has.

    ``by_us``: this attempt has committed it. ``rewritten``: an earlier run had begun the batch.
    ``prepared``: it is written by this attempt, and waits for the driver's decision.
    """

    marker: Marker
    by_us: bool
    rewritten: bool = False
    prepared: PreparedShard | None = None


@dataclass(frozen=True, slots=True)
class PreparedShard:
    """A shard of an atomic batch that one attempt has prepared. ``shard`` names the attempt."""

    shard: Shard
    transaction: PreparedTransaction


Step: TypeAlias = (
    TakeOver
    | ReadMarker
    | WriteRows
    | CommitMarkers
    | Prepare
    | EndAll
    | FenceAll
    | ListOpen
    | CheckTime
    | CompareRows
    | Pause
)
Protocol: TypeAlias = Generator[Step, Any, Delivered]
