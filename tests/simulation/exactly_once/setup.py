"""The circumstances of one run with transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.setup import Setup

Place = tuple[str, int]
"""Topic and partition."""

TRANSACTIONAL_ID = "tx"
GROUP = "group"


class Who(NamedTuple):
    """A producer, as it says itself. Without an id it has none yet."""

    producer_id: int = -1
    epoch: int = -1


@dataclass(frozen=True, slots=True, repr=False)
class TransactionSetup(Setup):
    """``level`` is that of the cluster's feature ``transaction.version``: protocol 2 needs 2.

    ``coordinated_epoch``: the last one that the coordinator knows of; near the end of all epochs,
    the producer needs another id. ``fences_late_commits``: a commit that the coordinator's own
    abort was faster than is answered as one of a fenced producer (KAFKA-20785). Times of the
    producer in milliseconds, as its options are.
    """

    level: int = 2
    find_version: int = 6
    identity_version: int = 5
    add_version: int = 3
    end_version: int = 5
    offsets_version: int = 5
    coordinated_epoch: int = -1
    fences_late_commits: bool = False
    transaction_timeout_ms: int = 60_000
