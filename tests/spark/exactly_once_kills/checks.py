"""Checks after a job: all rows are stored once, in order, and no transaction is open."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kprod.admin import open_transactions
from tests.spark.exactly_once_kills.clusters import PARTITIONS
from tests.spark.exactly_once_kills.jobs import Job, expected, task_of, writers
from tests.support.committed_records import committed, group_offset, read_each

SHOWN = 5
CLEANING = 15.0
"""Seconds: Apache Kafka looks for expired transactions every ten seconds."""


class Violation(AssertionError):
    """A promise was broken."""


def check(job: Job, servers: str, wrote: Sequence[str] | None = None) -> None:
    """Raises Violation if a row is lost or duplicated, or a transaction stays open.

    ``wrote`` are the writers that have succeeded; None: all of them.
    """
    longest = job.transaction_timeout_ms / 1000 + CLEANING
    _await_no_transaction(job, servers, longest)
    try:
        # As long again: a delayed copy may begin its transaction only now.
        stored = committed(servers, job.topic, PARTITIONS, seconds=longest)
        rows = [value.decode() for value in stored]
    except AssertionError as unstable:
        raise Violation(str(unstable)) from unstable
    check_rows(job, rows, wrote)


def check_rows(job: Job, rows: list[str], wrote: Sequence[str] | None = None) -> None:
    """Raises Violation unless the rows are those of the job, each once, and in order.

    Rows of writers that are not in ``wrote`` may be missing: with "atomic" all or none.
    """
    counted = Counter(rows)
    wanted = {name: expected(job, name) for name in writers(job)}
    duplicated = [value for value, times in counted.items() if times > 1]
    promised = [value for name in (wanted if wrote is None else wrote) for value in wanted[name]]
    lost = sorted(set(promised) - set(counted))
    unexpected = sorted(set(counted) - {value for values in wanted.values() for value in values})
    if duplicated or lost or unexpected:
        raise Violation(
            f"{len(lost)} lost {lost[:SHOWN]}, {len(duplicated)} duplicated {duplicated[:SHOWN]},"
            f" {len(unexpected)} unexpected {unexpected[:SHOWN]}"
        )
    for name, values in wanted.items():
        missing = len(set(values) - set(counted))
        if job.delivery == "atomic" and 0 < missing < len(values):
            raise Violation(f"an atomic batch is visible in part: {missing} rows of {name} are not")
    if job.surface != "twins":  # their keys are in several shards
        _check_order(job, rows)


def check_decided(job: Job, servers: str) -> None:
    """Raises Violation if rows of an undecided atomic batch are visible."""
    batches = {int(value.split()[0]) for value in visible(servers, job.topic)}
    if not batches:
        return
    layout_id = _layout_id_of_call(job, servers) if job.surface == "call" else job.layout_id()
    if layout_id is None:
        raise Violation(f"batch {max(batches)} is visible, and nothing is decided")
    for wait in (False, True):  # the transaction of the decision may be unfinished
        try:
            recorded = group_offset(servers, layout_id, job.topic, 0, wait=wait)
        except KafkaException as undecided:
            raise Violation(f"batch {max(batches)} is visible undecided: {undecided}") from None
        if max(batches) + 1 <= recorded:
            return
    raise Violation(f"batch {max(batches)} is visible, and {recorded} is decided")


def _layout_id_of_call(job: Job, servers: str) -> str | None:
    admin = AdminClient({"bootstrap.servers": servers})  # until its answer is there
    listed = admin.list_consumer_groups().result(60)
    assert not listed.errors, listed.errors
    name = re.compile(job.layout_id() or "")
    return next((one.group_id for one in listed.valid if name.fullmatch(one.group_id)), None)


def visible(servers: str, topic: str) -> list[str]:
    """The committed values up to the last stable offset of each partition."""
    options: Any = {"isolation": "read_committed", "ends": [0] * PARTITIONS}
    found = read_each(servers, topic, PARTITIONS, 60, **options)
    return [(record.value or b"").decode() for record in found]


AFTER_CANCEL = 30.0
"""Seconds after which a job that was cancelled has no transaction open."""


def check_cancelled(job: Job, servers: str) -> None:
    """Raises Violation unless the transactions of a cancelled job end soon."""
    _await_no_transaction(job, servers, AFTER_CANCEL)


def _await_no_transaction(job: Job, servers: str, longest: float) -> None:
    """Wait for open transactions, as of fenced copies; brokers abort them at their timeout."""
    started = time.monotonic()
    while found := [one for one in open_transactions(servers) if job.topic in one.transactional_id]:
        seconds = time.monotonic() - started
        if seconds > longest:
            raise Violation(f"after {seconds:.0f} s a transaction is open: {found[:SHOWN]}")
        time.sleep(0.1)


def _check_order(job: Job, rows: list[str]) -> None:
    """The rows of a key are in order within each shard, batch after batch."""
    by_key: defaultdict[str, list[str]] = defaultdict(list)
    for value in rows:
        _, key, number, writer = value.split()
        by_key[f"{key} {task_of(job, int(number))} {writer}"].append(value)
    for key, found in by_key.items():
        if found != sorted(found):
            raise Violation(f"the rows of key {key} are not in order: {found[:SHOWN]}")
