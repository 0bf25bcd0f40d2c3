"""All topics of the broker."""

from __future__ import annotations

import os
import re
import resource
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.log.log_directories import LogDirectories
from kprod.broker.log.partition_log import PartitionLog
from kprod.errors import BrokerError
from kprod.types import TopicPartition

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Topic:
    """A name, an id that no other topic ever has, and the logs of partitions 0, 1, 2 ..."""

    name: str
    id: uuid.UUID
    partitions: tuple[PartitionLog, ...]

    @property
    def is_internal(self) -> bool:
        """Whether only the broker writes to the topic."""
        return self.name in INTERNAL_TOPICS


def is_legal_name(name: str) -> bool:
    """1 to 249 letters, digits, dots, underscores and dashes; not ``.`` or ``..``."""
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


MAX_PARTITIONS: Final = 10_000
"""Limit of a topic, and of all topics in one request (Kafka: ReplicationControlManager)."""


class Topics:
    """Finds, creates and deletes topics; raises ``BrokerError`` with the code for the client.

    Thread-safe: lookups read a mapping that is replaced, never changed.
    """

    def __init__(self, logs: LogDirectories) -> None:
        self._logs = logs
        self._changing = threading.Lock()
        self._closed = False
        self._by_name: Mapping[str, Topic] = {}
        self._by_id: Mapping[uuid.UUID, Topic] = {}
        for name, topic_id in list(logs.topic_ids.items()):
            numbers = [where.partition for where in logs.logs if where.topic == name]
            self._make(name, topic_id, max(numbers) + 1, opening=True)

    def all(self) -> list[Topic]:
        """Every topic, by name."""
        return [topic for _, topic in sorted(self._by_name.items())]

    def find(self, name: str) -> Topic | None:
        """The topic of that name."""
        return self._by_name.get(name)

    def find_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        """The topic with this id, if any; None stands for the zero id."""
        return None if topic_id is None else self._by_id.get(topic_id)

    def close(self) -> None:
        """Create no more partitions: that raises ``BrokerError`` 41 from now on."""
        self._closed = True

    def create(
        self, name: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic with these settings of its own, which have Kafka's names.

        Raises ``BrokerError`` 17 (invalid name), 36 (exists), 37 (number of partitions), 40
        (settings), 44 (too few descriptors are left) or 56 (disk).
        """
        with self._changing:
            self.check_new(name, partitions)
            _check_descriptors(partitions)
            self._configure(name, settings or {})
            return self._make(name, uuid.uuid4(), partitions)

    def check_new(self, name: str, partitions: int) -> None:
        """Raise what ``create`` would raise, as far as that can be known before."""
        if not is_legal_name(name):
            raise BrokerError(ErrorCode.invalid_topic_exception, f"{name!r} is not a topic name")
        if name in self._by_name:
            raise BrokerError(ErrorCode.topic_already_exists, f"topic {name} exists")
        shown = _in_metrics(name)
        others = self._by_name if "_" in shown else ()
        alike = [other for other in others if _in_metrics(other) == shown]
        if alike:
            raise BrokerError(
                ErrorCode.invalid_topic_exception,
                f"topic {name} has one name with {alike[0]} where dots become underscores",
            )
        _check_count(partitions)

    def find_or_create(
        self, name: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> Topic:
        """The topic; created if it does not exist. Raises ``BrokerError`` like ``create``."""
        while True:
            found = self._by_name.get(name)
            if found is not None:
                return found
            try:
                return self.create(name, partitions, settings)
            except BrokerError as error:
                # Two clients asked at once, and the other one was first.
                if error.code != ErrorCode.topic_already_exists:
                    raise

    def extend(self, name: str, partitions: int) -> None:
        """Add partitions. Raises ``BrokerError`` 3 (no topic), 37 (not more than now), 44 or 56."""
        with self._changing:
            topic = self.check_extension(name, partitions)
            _check_descriptors(partitions - len(topic.partitions))
            self._make(name, topic.id, partitions)

    def check_extension(self, name: str, partitions: int) -> Topic:
        """Raise what ``extend`` would raise, as far as that can be known before."""
        _check_count(partitions)
        topic = self._existing(name)
        if partitions <= len(topic.partitions):
            raise BrokerError(
                ErrorCode.invalid_partitions,
                f"topic {name} has {len(topic.partitions)} partitions",
            )
        return topic

    def settings(self, name: str) -> Mapping[str, str]:
        """The topic's own settings."""
        return self._logs.overrides.of(name)

    def configure(self, name: str, settings: Mapping[str, str]) -> None:
        """Replace a topic's own settings. Raises ``BrokerError`` 3 (topic), 40 (settings) or 56."""
        with self._changing:
            self._existing(name)
            self._configure(name, settings)

    def _configure(self, name: str, settings: Mapping[str, str]) -> None:
        try:
            self._logs.reconfigure(name, settings)
        except OSError as error:
            raise BrokerError(ErrorCode.kafka_storage_error, str(error)) from error

    def delete(self, name: str, now_ms: int) -> None:
        """Delete a topic; its files follow later. Raises ``BrokerError`` 3 (topic) or 56 (disk)."""
        with self._changing:
            topic = self._existing(name)
            self._by_name = {n: t for n, t in self._by_name.items() if n != name}
            self._by_id = {i: t for i, t in self._by_id.items() if i != topic.id}
            try:
                for log in topic.partitions:
                    if log.offline:
                        raise OSError(f"{log.where} is in a directory that is offline")
                    self._logs.remove(log.where, now_ms)
            except OSError as error:
                raise BrokerError(ErrorCode.kafka_storage_error, str(error)) from error

    def _existing(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
        return topic

    def _make(self, name: str, topic_id: uuid.UUID, count: int, *, opening: bool = False) -> Topic:
        """Create the missing partitions, the last one first.

        If the process ends in between, the next start sees from the highest partition how many
        there should be, and creates the others. With ``opening``, a partition that may be in an
        unreadable directory is not created again.
        """
        try:
            wanted = [TopicPartition(name, number) for number in reversed(range(count))]
            logs = [self._log(where, topic_id, opening=opening) for where in wanted]
            self._logs.flush_names()
        except OSError as error:
            raise BrokerError(ErrorCode.kafka_storage_error, str(error)) from error
        topic = Topic(name, topic_id, tuple(reversed(logs)))
        self._by_name = {**self._by_name, name: topic}
        self._by_id = {**self._by_id, topic_id: topic}
        return topic

    def _log(self, where: TopicPartition, topic_id: uuid.UUID, *, opening: bool) -> PartitionLog:
        if self._closed:
            raise BrokerError(ErrorCode.not_controller, "the broker is stopping")
        known = self._by_name.get(where.topic)
        if known is not None and where.partition < len(known.partitions):
            return known.partitions[where.partition]
        found = self._logs.logs.get(where) or (self._logs.missing(where) if opening else None)
        return found or self._logs.create(where, topic_id)


def _in_metrics(name: str) -> str:
    """The topic's name in metrics, in which Kafka requires topics to differ."""
    return name.replace(".", "_")


def _check_count(partitions: int) -> None:
    if not 0 < partitions <= MAX_PARTITIONS:
        raise BrokerError(
            ErrorCode.invalid_partitions, f"a topic has 1 to {MAX_PARTITIONS} partitions"
        )


def check_request(partitions: int) -> None:
    """Raise ``BrokerError`` 44 for more partitions than one request may create."""
    if partitions > MAX_PARTITIONS:
        raise BrokerError(
            ErrorCode.policy_violation,
            f"a request makes at most {MAX_PARTITIONS} partitions, this one asks for {partitions}",
        )


def _check_descriptors(partitions: int) -> None:
    """Raise ``BrokerError`` 44 if the partitions' files would leave too few descriptors."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/dev/fd"))
    if used + partitions > most * 3 // 4:
        raise BrokerError(
            ErrorCode.policy_violation,
            f"{partitions} partitions take as many descriptors, and {used} of {most} are in use; "
            "raise the limit of open files (ulimit -n)",
        )
