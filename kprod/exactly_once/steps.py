"""The steps that the protocol of a shard consists of.

A protocol is a generator of steps. A runner executes each step, and sends the result back into the
generator. If another attempt has taken over the transactional id, the runner throws ``Fenced`` into
the generator. So the same protocol runs with producers and, in tests, with a model of the brokers.
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
    """A newer producer has the transactional id, so this attempt cannot commit anything.

    ``too_slow`` is set if the transaction has exceeded its time-out. In this case, the coordinator
    itself has fenced the attempt, unless another attempt has also taken over.
    """

    def __init__(self, text: str, too_slow: TransactionTooSlow | None = None) -> None:
        super().__init__(text)
        self.too_slow = too_slow


@dataclass(frozen=True, slots=True)
class TakeOver:
    """InitProducerId: fence all other producers with this id, and end their open transaction."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ReadMarker:
    """Read the marker of a group. The result is a Marker or None.

    With ``wait``, wait until no open transaction can change the marker. Without ``wait``, the
    result is None if an open transaction can change the marker.
    """

    group: str
    wait: bool = True


@dataclass(frozen=True, slots=True)
class WriteRows:
    """Begin a transaction, and store every row. The result is a ``Written``."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class CommitMarkers:
    """Commit the transaction of this id, including ``markers``: pairs of a group and a marker.

    Begins a transaction if none is open.
    """

    transactional_id: str
    markers: tuple[tuple[str, Marker], ...]


@dataclass(frozen=True, slots=True)
class Prepare:
    """Add the marker to the open transaction of this id, and leave the transaction prepared.

    The result is a PreparedTransaction.
    """

    transactional_id: str
    group: str
    marker: Marker


@dataclass(frozen=True, slots=True)
class EndAll:
    """Commit or abort prepared transactions, which their producer ids and epochs identify.

    The result has a bool for each transaction: False if it was ended in another way, or if another
    producer took over.
    """

    transactions: tuple[PreparedTransaction, ...]
    committed: bool


@dataclass(frozen=True, slots=True)
class FenceAll:
    """Take over each of these ids, which aborts its open transaction.

    An abort by EndTxn is not enough, because a task may still be writing. With version 1 of the
    transaction protocol, EndTxn does not change the task's epoch, so the task would continue in a
    new transaction, without its earlier rows.
    """

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListOpen:
    """List the open transactions of attempts at shards of the job.

    The result is a list of PreparedTransaction. With ``idle``, it also includes the id of the
    layout, and ids that an attempt has taken over without having written yet: the attempt may begin
    a transaction. With ``if_possible``, the result is empty if brokers cannot list transactions.
    Such brokers have no prepared transactions, because ``delivery="atomic"`` does not write to
    them.
    """

    job_name: str
    idle: bool = False
    if_possible: bool = False


@dataclass(frozen=True, slots=True)
class CheckTime:
    """Raise TransactionTooSlow if one of these transactions was open for half of its time-out."""

    transactions: tuple[PreparedTransaction, ...]


@dataclass(frozen=True, slots=True)
class CompareRows:
    """Raise RowsChanged unless the attempt's rows match the marker. The attempt writes nothing."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for this number of seconds."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of ``WriteRows``: the numbers of rows and bytes that are stored.

    ``digest`` is as in ``Marker``.
    """

    rows: int
    bytes: int
    digest: int | None = None
    ranges: Ranges = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The shard is done, as ``marker`` describes.

    ``by_us``: this attempt has written the shard. ``rewritten``: an earlier run had begun the
    batch. ``prepared``: the transaction of the shard, if it waits for the driver's decision.
    """

    marker: Marker
    by_us: bool
    rewritten: bool = False
    prepared: PreparedShard | None = None


@dataclass(frozen=True, slots=True)
class PreparedShard:
    """A shard of an atomic batch that one attempt has prepared. ``shard`` includes the attempt."""

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
