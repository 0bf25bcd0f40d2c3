"""The parameters of one run with transactions."""

from __future__ import annotations

from dataclasses import dataclass

from kprod.broker import ApiKey
from tests.simulation.setup import Setup

TRANSACTIONAL_ID = "tx"
GROUP = "group"
READ = "read"
"""The topic whose offsets transactions commit."""


@dataclass(frozen=True, slots=True, repr=False)
class TransactionSetup(Setup):
    """``level`` is the cluster's ``transaction.version``: protocol 2 needs 2.

    ``coordinated_epoch``: the last epoch the coordinator knows; near the maximum, the producer
    needs another id. ``marker_delay_ms`` and ``fences_late_commits``: as in ``TransactionConfig``.
    """

    level: int = 2
    find_version: int = 6
    identity_version: int = 5
    add_version: int = 3
    end_version: int = 5
    offsets_version: int = 5
    coordinated_epoch: int = -1
    marker_delay_ms: int = 0
    fences_late_commits: bool = False
    transaction_timeout_ms: int = 60_000

    @property
    def newest_versions(self) -> dict[ApiKey, int]:
        return {
            ApiKey.PRODUCE: self.produce_version,
            ApiKey.METADATA: self.metadata_version,
            ApiKey.API_VERSIONS: self.handshake_version,
            ApiKey.FIND_COORDINATOR: self.find_version,
            ApiKey.INIT_PRODUCER_ID: self.identity_version,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_version,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_version,
            ApiKey.END_TXN: self.end_version,
            ApiKey.TXN_OFFSET_COMMIT: self.offsets_version,
        }
