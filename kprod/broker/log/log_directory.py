"""The data directory: one process at a time, one sub-directory per partition."""

from __future__ import annotations

import base64
import fcntl
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kprod.broker.log.durable_file import flush_directory, replace_file
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_loader import LogLoader
from kprod.broker.log.offset_checkpoint import read_offsets, write_offsets
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.log.properties_file import read_properties, write_properties
from kprod.broker.log.storage_error import StorageError
from kprod.types import TopicPartition

NODE_ID: Final = 1

_META: Final = "meta.properties"
_META_VERSION: Final = "1"
_PARTITION_META: Final = "partition.metadata"
_PARTITION_META_VERSION: Final = "0"
_LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
_CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_START_OFFSETS: Final = "log-start-offset-checkpoint"
_PARTITION_NAME: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d{1,5})")
_LOADING_THREADS: Final = 2
_log = logging.getLogger(__name__)


class LogDirectory:
    """All partitions on disk (Kafka: LogManager, with one log directory).

    Opening locks the directory, and loads every partition: as it is after a clean shutdown, with
    recovery otherwise. Not thread-safe: creating, removing and closing are the registry's, which
    has a lock.
    """

    def __init__(self, path: Path, config: LogConfig) -> None:
        """Raises ``StorageError`` when another broker has the directory or wrote it differently."""
        self.path = path
        self._config = config
        path.mkdir(parents=True, exist_ok=True)
        self._lock_fd = self._take_lock()
        try:
            self.cluster_id = self._cluster_id()
            self.topic_ids: dict[str, uuid.UUID] = {}
            self.logs = self._load()
        except BaseException:
            self._release_lock()
            raise

    def _take_lock(self) -> int:
        lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise StorageError(f"{self.path} is in use by another broker") from None
        return lock

    def _release_lock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _cluster_id(self) -> str:
        meta = self.path / _META
        if not meta.exists():
            values = {
                "version": _META_VERSION,
                "node.id": str(NODE_ID),
                "cluster.id": encode_id(uuid.uuid4()),
                "directory.id": encode_id(uuid.uuid4()),
            }
            write_properties(meta, "=", values)
        return read_properties(meta, "=", _META_VERSION)["cluster.id"]

    def _load(self) -> dict[TopicPartition, PartitionLog]:
        marker = self.path / _CLEAN_SHUTDOWN
        clean = marker.exists()
        # Before the first file is touched: if we die half way through, the next start recovers.
        marker.unlink(missing_ok=True)
        flush_directory(self.path)
        points = read_offsets(self.path / _RECOVERY_POINTS)
        starts = read_offsets(self.path / _START_OFFSETS)
        for doomed in self.path.glob("*-delete"):
            shutil.rmtree(doomed)
        found = list(self._partitions())
        loaders = [
            LogLoader(
                where,
                directory,
                self._config,
                recovery_point=None if clean else points.get(where, 0),
                start_offset=starts.get(where, 0),
            )
            for where, directory in found
        ]
        with ThreadPoolExecutor(_LOADING_THREADS, "kprod-broker-load") as pool:
            logs = dict(zip((w for w, _ in found), pool.map(LogLoader.load, loaders), strict=True))
        if not clean and logs:
            self._write_recovery_points(logs)
        return logs

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
        """Make an empty partition, durable after ``flush_names``. May raise ``OSError``."""
        directory = self.path / str(where)
        directory.mkdir(exist_ok=True)
        (directory / _LEADER_EPOCHS).write_bytes(b"0\n1\n0 0\n")
        log = LogLoader(where, directory, self._config, recovery_point=None, start_offset=0).load()
        # Last: a directory without this file is not a partition, should we die on the way.
        values = {"version": _PARTITION_META_VERSION, "topic_id": encode_id(topic_id)}
        write_properties(directory / _PARTITION_META, ": ", values)
        self.logs[where] = log
        self.topic_ids[where.topic] = topic_id
        return log

    def flush_names(self) -> None:
        """Make the names of new partitions durable."""
        flush_directory(self.path)

    def remove(self, where: TopicPartition) -> None:
        """Take a partition off the disk; readers that still hold its log find nothing in it."""
        log = self.logs.pop(where)
        log.abandon()
        doomed = self.path / f"{uuid.uuid4().hex}-delete"
        log.directory.rename(doomed)
        flush_directory(self.path)
        shutil.rmtree(doomed)
        if all(left.topic != where.topic for left in self.logs):
            del self.topic_ids[where.topic]

    def close(self) -> None:
        """Flush and close every log; mark the directory as clean if every one of them could."""
        failed = False
        for log in self.logs.values():
            try:
                log.close()
            except OSError:
                failed = True
                _log.exception("%s could not be closed; the next start will recover it", log.where)
                log.abandon()
        if not failed:
            self._mark_clean()
        self._release_lock()

    def _mark_clean(self) -> None:
        self._write_recovery_points(self.logs)
        starts = {w: log.start_offset for w, log in self.logs.items() if log.start_offset}
        write_offsets(self.path / _START_OFFSETS, starts)
        marker = json.dumps({"version": 0, "brokerEpoch": -1})
        replace_file(self.path / _CLEAN_SHUTDOWN, marker.encode())

    def _write_recovery_points(self, logs: dict[TopicPartition, PartitionLog]) -> None:
        points = {where: log.recovery_point for where, log in logs.items()}
        write_offsets(self.path / _RECOVERY_POINTS, points)

    def abandon(self) -> None:
        """Let go of everything as a crash would."""
        for log in self.logs.values():
            log.abandon()
        self._release_lock()


def encode_id(value: uuid.UUID) -> str:
    """Kafka's text form of a UUID: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_id(text: str) -> uuid.UUID:
    """The other way round; ``StorageError`` for anything else."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError:
        raise StorageError(f"{text!r} is not an id") from None
