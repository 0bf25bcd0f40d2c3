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
    """A topic: its name, its id, and the logs of its partitions, by number.

    The id is never given to another topic, not even to one of the same name.
    """

    name: str
    id: uuid.UUID
    partitions: tuple[PartitionLog, ...]

    @property
    def is_internal(self) -> bool:
        """Whether only the broker writes to the topic."""
        return self.name in INTERNAL_TOPICS


def is_legal_name(name: str) -> bool:
    """Whether a name has 1 to 249 letters, digits, dots, underscores and dashes.

    The names ``.`` and ``..`` are not legal.
    """
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


MAX_PARTITIONS: Final = 10_000
"""Limit of a topic, and of all topics in one request (Kafka: ReplicationControlManager)."""


class Topics:
    """Finds, creates and deletes topics.

    Its methods raise ``BrokerError`` with the code for the client. Thread-safe: lookups take no
    lock, because they read a mapping that is replaced, never changed.
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
        """Return all topics, sorted by name."""
        return [topic for _, topic in sorted(self._by_name.items())]

    def find(self, name: str) -> Topic | None:
        """Return the topic with this name, or None."""
        return self._by_name.get(name)

    def find_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        """Return the topic with this id, or None. An id of None stands for Kafka's zero id."""
        return None if topic_id is None else self._by_id.get(topic_id)

    def close(self) -> None:
        """Create no more partitions. Later attempts raise ``BrokerError`` 41 (NOT_CONTROLLER)."""
        self._closed = True

    def create(
        self, name: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic. ``settings`` are its own settings, with Kafka's names.

        Raises ``BrokerError`` 17 (invalid name), 36 (topic exists), 37 (number of partitions), 40
        (settings), 44 (too few descriptors are left) or 56 (disk failure).
        """
        with self._changing:
            self.check_new(name, partitions)
            _check_descriptors(partitions)
            self._configure(name, settings or {})
            return self._make(name, uuid.uuid4(), partitions)

    def check_new(self, name: str, partitions: int) -> None:
        """Raise the ``BrokerError`` of ``create`` for this name and number, but create nothing.

        Settings, descriptors and the disk are not checked.
        """
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
        """Return the topic, and create it if necessary. Raises ``BrokerError`` like ``create``."""
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
        """Add partitions to a topic, so that it has ``partitions`` in total.

        Raises ``BrokerError`` 3 (unknown topic), 37 (too many, or not more than now), 44 (too few
        descriptors are left) or 56 (disk failure).
        """
        with self._changing:
            topic = self.check_extension(name, partitions)
            _check_descriptors(partitions - len(topic.partitions))
            self._make(name, topic.id, partitions)

    def check_extension(self, name: str, partitions: int) -> Topic:
        """Check whether ``extend`` would accept this name and number. If not, raise its error.

        Descriptors and the disk are not checked. Returns the topic.
        """
        _check_count(partitions)
        topic = self._existing(name)
        if partitions <= len(topic.partitions):
            raise BrokerError(
                ErrorCode.invalid_partitions,
                f"topic {name} has {len(topic.partitions)} partitions",
            )
        return topic

    def settings(self, name: str) -> Mapping[str, str]:
        """Return the topic's own settings."""
        return self._logs.overrides.of(name)

    def configure(self, name: str, settings: Mapping[str, str]) -> None:
        """Replace a topic's own settings.

        Raises ``BrokerError`` 3 (unknown topic), 40 (invalid setting) or 56 (disk failure).
        """
        with self._changing:
            self._existing(name)
            self._configure(name, settings)

    def _configure(self, name: str, settings: Mapping[str, str]) -> None:
        try:
            self._logs.reconfigure(name, settings)
        except OSError as error:
            raise BrokerError(ErrorCode.kafka_storage_error, str(error)) from error

    def delete(self, name: str, now_ms: int) -> None:
        """Delete a topic. Its files are deleted later.

        Raises ``BrokerError`` 3 (unknown topic) or 56 (disk failure). A topic with a partition that
        is offline is not deleted, because the next start would find that partition again.
        """
        with self._changing:
            topic = self._existing(name)
            for log in topic.partitions:
                if log.offline:
                    raise BrokerError(ErrorCode.kafka_storage_error, f"{log.where} is offline")
            self._by_name = {n: t for n, t in self._by_name.items() if n != name}
            self._by_id = {i: t for i, t in self._by_id.items() if i != topic.id}
            try:
                for log in topic.partitions:
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

        If the process ends in between, the next start learns the number of partitions from the
        highest one, and creates those that are missing. With ``opening``, a partition that may be
        in an unreadable directory is not created again.
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
    """The topic's name in metrics. Kafka requires that no two topics have the same one."""
    return name.replace(".", "_")


def _check_count(partitions: int) -> None:
    if not 0 < partitions <= MAX_PARTITIONS:
        raise BrokerError(
            ErrorCode.invalid_partitions, f"a topic has 1 to {MAX_PARTITIONS} partitions"
        )


def check_request(partitions: int) -> None:
    """Raise ``BrokerError`` 44 if one request may not create so many partitions."""
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
