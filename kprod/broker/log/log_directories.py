"""All data directories of a broker: loaded at once, and lost one by one."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directory import (
    TOPIC_OVERRIDES,
    LogDirectory,
    encode_id,
    known_cluster_id,
)
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.log.storage_error import StorageError
from kprod.broker.log.topic_overrides import TopicOverrides
from kprod.broker.topic_configs import with_overrides
from kprod.types import TopicPartition

_log = logging.getLogger(__name__)


class LogDirectories:
    """All partitions on disk (Kafka: LogManager).

    A new partition goes to the directory that has the fewest. A directory whose disk fails, now or
    when it is opened, is offline until the next start, and the broker goes on with the others. The
    first one also has what belongs to no partition: settings of topics, producer ids.

    Not thread-safe: creating, removing and closing are the registry's, which has a lock.
    """

    def __init__(self, paths: Sequence[Path], config: LogConfig) -> None:
        """Raises ``StorageError`` when a directory is another broker's, or has what another has.

        ``OSError`` when the first directory cannot be used.
        """
        self.path = paths[0]
        self._config = config
        self.path.mkdir(parents=True, exist_ok=True)
        self.overrides = TopicOverrides(self.path / TOPIC_OVERRIDES)
        self._unusable: dict[Path, OSError] = {}
        self.cluster_id = self._find_cluster_id(paths)
        self.directories = self._open(paths)
        try:
            self.logs, self.topic_ids = self._merge()
        except BaseException:
            self.abandon()
            raise

    def _find_cluster_id(self, paths: Sequence[Path]) -> str:
        for path in paths:
            try:
                found = known_cluster_id(path)
            except StorageError:
                raise
            except OSError as error:
                self._give_up(path, error)
                continue
            if found:
                return found
        return encode_id(uuid.uuid4())

    def _give_up(self, path: Path, error: OSError) -> None:
        if path == self.path:
            raise error
        _log.error("%s is offline, with its partitions: %s", path, error)
        self._unusable[path] = error

    def _open(self, paths: Sequence[Path]) -> list[LogDirectory]:
        usable = [path for path in paths if path not in self._unusable]
        with ThreadPoolExecutor(len(usable), "kprod-broker-open") as pool:
            opening = [
                pool.submit(LogDirectory, path, self._config, self.overrides, self.cluster_id)
                for path in usable
            ]
        opened: list[LogDirectory] = []
        fatal: BaseException | None = None
        for path, future in zip(usable, opening, strict=True):
            error = future.exception()
            if error is None:
                opened.append(future.result())
            elif isinstance(error, OSError) and not isinstance(error, StorageError):
                if path == self.path:
                    fatal = error
                else:
                    self._give_up(path, error)
            else:
                fatal = error
        if fatal is not None:
            for directory in opened:
                directory.abandon()
            raise fatal
        return opened

    def _merge(self) -> tuple[dict[TopicPartition, PartitionLog], dict[str, uuid.UUID]]:
        logs: dict[TopicPartition, PartitionLog] = {}
        ids: dict[str, uuid.UUID] = {}
        for directory in self.directories:
            for where, log in directory.logs.items():
                if where in logs:
                    raise StorageError(f"{log.directory} and {logs[where].directory}: keep one")
                logs[where] = log
            for topic, topic_id in directory.topic_ids.items():
                if ids.setdefault(topic, topic_id) != topic_id:
                    raise StorageError(f"{directory.path} has another topic of the name {topic}")
        return logs, ids

    @property
    def offline(self) -> dict[Path, OSError]:
        """The directories whose disk failed, and how."""
        failed = {each.path: each.failure for each in self.directories if each.failure is not None}
        return {**self._unusable, **failed}

    def missing(self, where: TopicPartition) -> PartitionLog | None:
        """What stands for a partition that may be in a directory that could not be opened.

        None when every directory could: there is no such partition, then.
        """
        for path, error in self._unusable.items():
            return PartitionLog.lost(where, path, self.config_of(where.topic), error)
        return None

    def config_of(self, topic: str) -> LogConfig:
        """The settings of a topic: the broker's, and its own in their place."""
        return with_overrides(self._config, self.overrides.of(topic))

    def reconfigure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Give a topic these settings of its own. ``BrokerError`` 40, ``OSError``."""
        config = with_overrides(self._config, settings)
        self.overrides.replace(topic, settings)
        for where, log in self.logs.items():
            if where.topic == topic:
                log.reconfigure(config)

    def create(self, where: TopicPartition, topic_id: uuid.UUID) -> PartitionLog:
        """Make an empty partition, durable after ``flush_names``. ``OSError`` if none can."""
        failure = OSError("every data directory is offline")
        for directory in sorted(self.directories, key=lambda each: len(each.logs)):
            if directory.failure is not None:
                continue
            try:
                log = self.logs[where] = directory.create(where, topic_id)
            except OSError as error:
                directory.fail(error)
                failure = error
                continue
            self.topic_ids[where.topic] = topic_id
            return log
        raise failure

    def flush_names(self) -> None:
        """Make the names of new partitions durable."""
        for directory in self.directories:
            if directory.failure is None:
                directory.flush_names()

    def remove(self, where: TopicPartition) -> None:
        """Take a partition off the disk; readers that still hold its log find nothing in it."""
        self.logs.pop(where)
        for directory in self.directories:
            if where in directory.logs:
                directory.remove(where)
        if all(left.topic != where.topic for left in self.logs):
            del self.topic_ids[where.topic]
            self.overrides.replace(where.topic, {})

    def maintain(self, now_ms: int) -> None:
        """Apply retention and compaction, flush what is due, and write checkpoints."""
        for directory in self.directories:
            if directory.failure is None:
                directory.maintain(now_ms)

    def close(self) -> None:
        """Flush and close every log, and mark each directory as clean where that went well."""
        for directory in self.directories:
            directory.close()

    def abandon(self) -> None:
        """Let go of everything as a crash would."""
        for directory in self.directories:
            directory.abandon()
