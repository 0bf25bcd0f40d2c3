"""The limits of transactions, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass

from kprod.errors import ConfigError

HIGHEST_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Kafka's defaults, but for the partitions of the state topic: 1 here and 50 in Kafka.

    ``transaction_version`` is the level of Kafka's feature of that name: with 2 every transaction
    that ends begins a new epoch, and partitions are added by the first batch (KIP-890); 1 and 0
    are what brokers before 4.0 do. ``marker_delay_ms`` is the time between the answer to EndTxn
    and the markers, in which the producer's next transaction is told to wait (51); with 0 the
    markers are written before the answer. ``fences_late_commits``: a commit that comes after the
    coordinator has aborted the transaction is answered PRODUCER_FENCED, as by brokers with
    KAFKA-20785; brokers before it answer INVALID_TXN_STATE.
    """

    transaction_version: int = HIGHEST_VERSION
    max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    state_topic_partitions: int = 1
    marker_delay_ms: int = 0
    fences_late_commits: bool = False

    def __post_init__(self) -> None:
        check_version(self.transaction_version)


def check_version(version: int) -> None:
    """Raise ``ConfigError`` unless there is such a level of ``transaction.version``."""
    if not 0 <= version <= HIGHEST_VERSION:
        raise ConfigError(f"transaction_version={version}: there are 0, 1 and {HIGHEST_VERSION}")
