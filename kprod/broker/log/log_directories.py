"""The data directories of a broker: locking, loading, and going offline if a disk fails."""

from __future__ import annotations

import base64
import errno
import fcntl
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from kprod.broker.descriptors import OpenFile
from kprod.broker.log.checkpoint_files import (
    StorageError,
    TopicOverrides,
    flush_directory,
    read_offsets,
    read_properties,
    replace_file,
    write_offsets,
    write_properties,
)
from kprod.broker.log.leader_epochs import LEADER_EPOCHS_FILE
from kprod.broker.log.log_cleaner import LogCleaner
from kprod.broker.log.log_config import LogConfig, with_overrides
from kprod.broker.log.log_loader import LogLoader
from kprod.broker.log.partition_log import PartitionLog
from kprod.records.codecs import CorruptBatch
from kprod.types import TopicPartition

NODE_ID: Final = 1

_META: Final = "meta.properties"
_META_VERSION: Final = "1"
_PARTITION_META: Final = "partition.metadata"
_PARTITION_META_VERSION: Final = "0"
_CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
TOPIC_OVERRIDES: Final = "topic-overrides.json"
_PRODUCER_EXPIRATION_MS: Final = 24 * 3_600_000
_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_START_OFFSETS: Final = "log-start-offset-checkpoint"
_PARTITION_NAME: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d{1,5})")
_DELETED_NAME: Final = re.compile(r"([a-zA-Z0-9._-]+-\d{1,5}\.)?[0-9a-f]{32}-delete")
"""Kafka's form of the name; older releases of kprod wrote it without topic and partition."""
_LONGEST_NAME: Final = 255
RECOVERY_THREADS: Final = 2
"""Kafka's default of ``num.recovery.threads.per.data.dir``."""
_CLOSING_THREADS: Final = 16
"""Closing a log waits for the disk, which can flush many files in the time of one."""
_OF_THE_PROCESS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that do not mean that the disk has failed."""
_log = logging.getLogger(__name__)


class LogDirectory:
    """The partitions in one directory (what Kafka's LogManager does for each of ``log.dirs``).

    The constructor locks the directory and loads every partition. Unless the last shutdown was
    clean, the partitions are also recovered. ``fail`` is thread-safe. The other methods are not:
    ``Topics`` calls them under its lock.
    """

    def __init__(
        self,
        path: Path,
        cluster_id: str,
        config_of: Callable[[str], LogConfig],
        recovery_threads: int = RECOVERY_THREADS,
    ) -> None:
        """``config_of`` returns a topic's settings; ``recovery_threads`` threads load partitions.

        Raises ``StorageError`` if another broker uses the directory or its content is unusable, and
        ``OSError`` if the directory cannot be read or written.
        """
        self.path = path
        self._config_of = config_of
        self._recovery_threads = recovery_threads
        # Directories of deleted partitions that wait for ``file.delete.delay.ms``, with the time.
        self._doomed: list[tuple[int, Path]] = []
        self.failure: OSError | None = None
        path.mkdir(parents=True, exist_ok=True)
        self._lock = self._take_lock()
        try:
            self._check_cluster(cluster_id)
            self.topic_ids: dict[str, uuid.UUID] = {}  # of the partitions that were loaded
            self._cleaner = LogCleaner(path)
            self.logs = self._load()
        except BaseException:
            self._lock.close()
            raise

    def _take_lock(self) -> OpenFile:
        lock = OpenFile(os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        try:
            fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise StorageError(f"{self.path} is in use by another broker") from None
        return lock

    def _check_cluster(self, cluster_id: str) -> None:
        found = known_cluster_id(self.path)
        if found is None:
            values = {
                "version": _META_VERSION,
                "node.id": str(NODE_ID),
                "cluster.id": cluster_id,
                "directory.id": encode_id(uuid.uuid4()),
            }
            write_properties(self.path / _META, "=", values)
        elif found != cluster_id:
            raise StorageError(f"{self.path} belongs to cluster {found}, not to {cluster_id}")

    def _load(self) -> dict[TopicPartition, PartitionLog]:
        marker = self.path / _CLEAN_SHUTDOWN
        clean = marker.exists()
        # Before the first file is touched: if we die half way through, the next start recovers.
        marker.unlink(missing_ok=True)
        flush_directory(self.path)
        points = read_offsets(self.path / _RECOVERY_POINTS)
        starts = read_offsets(self.path / _START_OFFSETS)
        for directory in self.path.glob("*-delete"):
            if _DELETED_NAME.fullmatch(directory.name):
                shutil.rmtree(directory)
        found = list(self._partitions())
        loaders = [
            self._loader(
                where, directory, None if clean else points.get(where, 0), starts.get(where, 0)
            )
            for where, directory in found
        ]
        with ThreadPoolExecutor(self._recovery_threads, "kprod-broker-load") as pool:
            logs = dict(zip((w for w, _ in found), pool.map(LogLoader.load, loaders), strict=True))
        if not clean and logs:
            self._write_checkpoints(logs)
        self._cleaner.forget_cut({where: log.end_offset for where, log in logs.items()})
        return logs

    def _loader(
        self, where: TopicPartition, directory: Path, recovery_point: int | None, start: int
    ) -> LogLoader:
        return LogLoader(
            where,
            directory,
            self._config_of(where.topic),
            recovery_point=recovery_point,
            start_offset=start,
            on_failure=self.fail,
        )

    def fail(self, error: OSError) -> None:
        """Take the directory offline, because its disk has failed. Idempotent and thread-safe.

        Its partitions then return error 56. The directory is no longer written to, and the next
        start recovers it. Does nothing if the cause is a lack of descriptors or memory. The caller
        must not hold a partition's lock. Kafka: LogDirFailureChannel.
        """
        if self.failure is not None or error.errno in _OF_THE_PROCESS:
            return
        self.failure = error
        _log.error("%s is offline from now on, with its partitions: %s", self.path, error)
        for log in list(self.logs.values()):
            log.go_offline(error)

    def _partitions(self) -> Iterator[tuple[TopicPartition, Path]]:
        for directory in sorted(self.path.iterdir()):
            name = _PARTITION_NAME.fullmatch(directory.name)
            meta = directory / _PARTITION_META
            if name and directory.is_dir() and meta.exists():
                where = TopicPartition(name[1], int(name[2]))
                values = read_properties(meta, ":", _PARTITION_META_VERSION)
                self.topic_ids[where.topic] = decode_id(values["topic_id"])
                yield where, directory

    def create(self, where: TopicPartition, topic_id: uuid.UUID) -> PartitionLog:
        """Create an empty partition. Raises ``OSError``.

        Until ``LogDirectories.flush_names`` was called, a crash may lose the partition.
        """
        directory = self.path / str(where)
        directory.mkdir(exist_ok=True)
        (directory / LEADER_EPOCHS_FILE).write_bytes(b"0\n1\n0 0\n")
        log = self._loader(where, directory, None, 0).load()
        # Last: a directory without this file is not a partition, should we die on the way.
        values = {"version": _PARTITION_META_VERSION, "topic_id": encode_id(topic_id)}
        write_properties(directory / _PARTITION_META, ": ", values)
        self.logs[where] = log
        return log

    def remove(self, where: TopicPartition, now_ms: int) -> None:
        """Rename a partition's directory, which is deleted after ``file.delete.delay.ms``.

        Readers that still use the log read nothing more from it. If the broker stops before the
        directory is deleted, the next start deletes it.
        """
        log = self.logs.pop(where)
        log.abandon()
        doomed = self.path / deleted_name(where)
        log.directory.rename(doomed)
        flush_directory(self.path)
        self._doomed.append((now_ms + log.config.file_delete_delay_ms, doomed))
        self._delete_due(now_ms)
        self._cleaner.forget(where)

    def _delete_due(self, now_ms: int) -> None:
        for entry in list(self._doomed):
            due_ms, directory = entry
            if due_ms <= now_ms:
                with suppress(ValueError):  # another thread has it
                    self._doomed.remove(entry)
                    shutil.rmtree(directory)

    def maintain(self, now_ms: int) -> None:
        """Apply retention and compaction, flush what is due, and write checkpoints.

        Only one thread at a time may call this. A damaged log is skipped until the next call. If a
        log cannot be read or written, the directory goes offline.
        """
        try:
            for log in list(self.logs.values()):
                if self.failure is not None:
                    return
                self._maintain(log, now_ms)
            self._delete_due(now_ms)
            self._write_checkpoints(dict(self.logs))
        except OSError as error:
            _log.exception("%s could not be maintained", self.path)
            self.fail(error)

    def _maintain(self, log: PartitionLog, now_ms: int) -> None:
        try:
            log.delete_old_segments(now_ms)
            self._cleaner.clean_if_dirty(log, now_ms)
            log.purge(now_ms)
            log.expire_producers(now_ms - _PRODUCER_EXPIRATION_MS)
            log.flush_if_older(now_ms)
            log.flush_rolled()
        except CorruptBatch:
            _log.exception("%s could not be maintained", log.where)
        except OSError:
            if self.logs.get(log.where) is log:
                raise
            # The partition was deleted meanwhile: its files have other names, or are gone.

    def close(self) -> None:
        """Flush and close every log. If all of that succeeds, mark the shutdown as clean."""
        with ThreadPoolExecutor(_CLOSING_THREADS, "kprod-broker-close") as pool:
            closed = list(pool.map(_close, list(self.logs.values())))
        if self.failure is None and all(closed):
            try:
                self._write_checkpoints(self.logs)
                marker = json.dumps({"version": 0, "brokerEpoch": -1})
                replace_file(self.path / _CLEAN_SHUTDOWN, marker.encode())
            except OSError:
                _log.exception("%s could not be marked as clean", self.path)
        self._lock.close()

    def _write_checkpoints(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        points = {where: log.recovery_point for where, log in logs.items()}
        write_offsets(self.path / _RECOVERY_POINTS, points)
        starts = {where: log.start_offset for where, log in logs.items() if log.start_offset}
        write_offsets(self.path / _START_OFFSETS, starts)

    def abandon(self) -> None:
        """Close everything as in a crash: flush nothing, and do not mark the shutdown as clean."""
        for log in self.logs.values():
            log.abandon()
        self._lock.close()


def _close(log: PartitionLog) -> bool:
    """Close a log, or abandon the log if that fails. Return whether it was closed."""
    try:
        log.close()
    except OSError:
        _log.exception("%s could not be closed; the next start will recover it", log.where)
        log.abandon()
        return False
    return True


def deleted_name(where: TopicPartition) -> str:
    """Make a new name for the directory of a deleted partition (Kafka: LocalLog.logDeleteDirName).

    The name is ``topic-partition.uuid-delete``, with the topic shortened to the file system's
    limit. Kafka can parse such names. So it can start on a data directory in which a crash has left
    one.
    """
    ending = f"-{where.partition}.{uuid.uuid4().hex}-delete"
    return where.topic[: _LONGEST_NAME - len(ending)] + ending


def known_cluster_id(path: Path) -> str | None:
    """Return the cluster id in a data directory; None for a new directory.

    Raises ``StorageError`` if the directory has another version.
    """
    meta = path / _META
    return read_properties(meta, "=", _META_VERSION)["cluster.id"] if meta.exists() else None


def encode_id(value: uuid.UUID) -> str:
    """Return Kafka's text form of a UUID: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_id(text: str) -> uuid.UUID:
    """Convert Kafka's text form to a UUID. Raises ``StorageError`` for any other text."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError:
        raise StorageError(f"{text!r} is not an id") from None


class LogDirectories:
    """All partitions on disk (Kafka: LogManager).

    A new partition is created in the directory with the fewest partitions. If a disk fails, its
    directory is offline until the next start, and the broker continues without it. That also holds
    for a disk that fails at the start, unless its directory is the first one. The first directory
    also has data that belongs to no partition: settings of topics, and producer ids.

    Not thread-safe: for creating and removing partitions, ``Topics`` has a lock.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        config: LogConfig,
        recovery_threads: int = RECOVERY_THREADS,
    ) -> None:
        """Open the directories. In each of them, ``recovery_threads`` threads load the partitions.

        Raises ``StorageError`` if another broker uses a directory, if the content of a directory is
        unusable, or if two directories have the same partition. Raises ``OSError`` if the first
        directory cannot be read or written.
        """
        self.path = paths[0]
        self._config = config
        self._recovery_threads = recovery_threads
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
                pool.submit(
                    LogDirectory, path, self.cluster_id, self.config_of, self._recovery_threads
                )
                for path in usable
            ]
        opened: list[LogDirectory] = []
        fatal: BaseException | None = None
        for path, future in zip(usable, opening, strict=True):
            try:
                found = future.exception()
                if isinstance(found, OSError) and not isinstance(found, StorageError):
                    self._give_up(path, found)
                else:
                    opened.append(future.result())
            except BaseException as error:
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
        """The directories whose disk has failed, with the error of each."""
        failed = {each.path: each.failure for each in self.directories if each.failure is not None}
        return {**self._unusable, **failed}

    def missing(self, where: TopicPartition) -> PartitionLog | None:
        """Return a placeholder for a partition that may be in a directory that could not be opened.

        If all directories were opened, the partition does not exist, and the result is None.
        """
        for path, error in self._unusable.items():
            return PartitionLog.lost(where, path, self.config_of(where.topic), error)
        return None

    def config_of(self, topic: str) -> LogConfig:
        """Return the settings of a topic: the broker's, overridden by the topic's own."""
        return with_overrides(self._config, self.overrides.of(topic))

    def reconfigure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Replace a topic's own settings.

        Raises ``BrokerError`` 40 for an invalid setting, and ``OSError`` if they cannot be written.
        """
        config = with_overrides(self._config, settings)
        self.overrides.replace(topic, settings)
        for where, log in self.logs.items():
            if where.topic == topic:
                log.reconfigure(config)

    def create(self, where: TopicPartition, topic_id: uuid.UUID) -> PartitionLog:
        """Create an empty partition, which is durable after ``flush_names``. Raises ``OSError``."""
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
        """Flush the directory names of new partitions to disk."""
        for directory in self.directories:
            if directory.failure is None:
                flush_directory(directory.path)

    def remove(self, where: TopicPartition, now_ms: int) -> None:
        """Remove a partition (see ``LogDirectory.remove``). Its name can be used again at once."""
        self.logs.pop(where)
        for directory in self.directories:
            if where in directory.logs:
                directory.remove(where, now_ms)
        if all(left.topic != where.topic for left in self.logs):
            del self.topic_ids[where.topic]
            self.overrides.replace(where.topic, {})

    def maintain(self, now_ms: int) -> None:
        """Apply retention and compaction, flush what is due, and write checkpoints."""
        for directory in self.directories:
            if directory.failure is None:
                directory.maintain(now_ms)

    def close(self) -> None:
        """Close every directory (see ``LogDirectory.close``)."""
        for directory in self.directories:
            directory.close()

    def abandon(self) -> None:
        """Close everything as in a crash: flush nothing, and do not mark the shutdown as clean."""
        for directory in self.directories:
            directory.abandon()
