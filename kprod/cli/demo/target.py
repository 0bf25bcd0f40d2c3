"""The topic the demo writes to, and what it held before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kprod.broker.log_reader import create_topic, end_offsets, read_topic
from kprod.errors import BrokerError

if TYPE_CHECKING:
    from kprod.broker.cluster_client import ClientSecurity
    from kprod.broker.records.record_batch import StoredRecord

TOPIC_ALREADY_EXISTS = 36
READ_SECONDS = 600.0  # for reading everything back


class Target:
    """One topic, seen through the independent reader. Only what is written from now on counts."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, security: ClientSecurity
    ) -> None:
        """Create the topic unless it is there. Raises KprodError when no broker answers."""
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self._security = security
        self._create(partitions)
        self._before = end_offsets(bootstrap_servers, topic, security=security)

    def _create(self, partitions: int) -> None:
        try:
            create_topic(self.bootstrap_servers, self.topic, partitions, security=self._security)
        except BrokerError as error:
            if error.code != TOPIC_ALREADY_EXISTS:
                raise

    def written(self) -> dict[int, int]:
        """Records added since, by partition."""
        now = end_offsets(self.bootstrap_servers, self.topic, security=self._security)
        return {partition: end - self._before[partition] for partition, end in sorted(now.items())}

    def read(self) -> Iterator[tuple[int, StoredRecord]]:
        """The records added since, each with its partition, in offset order per partition."""
        return read_topic(
            self.bootstrap_servers,
            self.topic,
            since=self._before,
            timeout=READ_SECONDS,
            security=self._security,
        )
