"""Transactions request by request, by both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker import TransactionConfig
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.node import Node
from kprod.broker.protocol.api_key import ApiKey
from tests.unit.broker.asking_producer import AskingProducer
from tests.unit.broker.nodes import ask, running_node

NONE = ErrorCode.none


@contextmanager
def running(path: Path, version: int = 2, **options: Any) -> Iterator[tuple[Node, PartitionLog]]:
    config = TransactionConfig(transaction_version=version, **options)
    with running_node(path, transaction_config=config) as node:
        yield node, node.topics.create("t", 2).partitions[0]


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.records(committed=True)]


BOTH = pytest.mark.parametrize("version", [1, 2])


@BOTH
def test_the_next_producer_fences_the_one_before(tmp_path: Path, version: int) -> None:
    with running(tmp_path, version) as (node, log):
        first, second = AskingProducer(node, version), AskingProducer(node, version)
        first.init()
        first.send(b"of the first")
        assert second.init() is ErrorCode.concurrent_transactions
        assert second.init() is NONE
        assert second.identity.producer_id == first.identity.producer_id
        assert second.identity.epoch > first.identity.epoch + 1
        assert first.send(b"late", unannounced=True) is ErrorCode.invalid_producer_epoch
        assert first.end(committed=True) is ErrorCode.producer_fenced
        assert first.end(committed=True, version=1) is ErrorCode.invalid_producer_epoch
        assert first.init(first.identity) is ErrorCode.producer_fenced
        assert first.init(first.identity, version=3) is ErrorCode.invalid_producer_epoch
        assert second.send(b"of the second") is NONE
        assert second.end(committed=True) is NONE
        assert values(log) == [b"of the second"]


def test_adding_partitions(tmp_path: Path) -> None:
    with running(tmp_path) as (node, _):
        producer = AskingProducer(node, 1)
        assert producer.add(0) == [ErrorCode.invalid_producer_id_mapping]
        producer.init()
        unknown, none = ErrorCode.unknown_topic_or_partition, ErrorCode.operation_not_attempted
        assert producer.add(0, 2, 1) == [none, unknown, none]
        assert producer.add(0, 1) == [NONE, NONE]
        stale = producer.identity
        producer.init()
        producer.identity, new = stale, producer.identity
        assert producer.add(0) == [ErrorCode.producer_fenced]
        assert producer.add(0, version=1) == [ErrorCode.invalid_producer_epoch]
        producer.identity = new._replace(name="")
        assert producer.add(0) == [ErrorCode.invalid_request]


def test_a_batch_outside_of_the_transaction_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as (node, log):
        producer = AskingProducer(node, 1)
        producer.init()
        send = {"unannounced": True}
        assert producer.send(b"x", **send) is ErrorCode.transaction_abortable
        assert producer.send(b"x", **send, version=10) is ErrorCode.invalid_txn_state
        unnamed = producer.send(b"x", **send, name=None)
        assert unnamed is ErrorCode.transactional_id_authorization_failed
        stranger = producer.send(b"x", **send, name="another")
        assert stranger is ErrorCode.invalid_producer_id_mapping
        assert producer.send(b"x", **send, producer_id=-1) is ErrorCode.invalid_record
        assert producer.add(0) == [NONE]
        assert producer.send(b"x", **send) is NONE
        assert producer.send(b"y", **send, attributes=0) is ErrorCode.invalid_txn_state
        assert log.last_stable_offset == 0


@BOTH
def test_offsets_of_a_zombie_are_refused(tmp_path: Path, version: int) -> None:
    with running(tmp_path, version) as (node, _):
        producer = AskingProducer(node, version)
        producer.init()
        stale: dict[str, Any] = {"producer_epoch": producer.identity.epoch}
        producer.init()
        assert producer.commit_offset(5, **stale) is ErrorCode.invalid_producer_epoch
        wrong: dict[str, Any] = {"generation_id": 3, "member_id": "nobody"}
        assert producer.commit_offset(5, group="h", **wrong) is ErrorCode.illegal_generation
        assert producer.commit_offset(5) is NONE
        assert producer.commit_offset(5, **wrong) is ErrorCode.unknown_member_id


def test_time_outs_and_ids_that_cannot_be(tmp_path: Path) -> None:
    with running(tmp_path, max_timeout_ms=1_000) as (node, _):
        producer = AskingProducer(node, 2)
        wrong = ErrorCode.invalid_transaction_timeout
        assert producer.init(transaction_timeout=1_001) is wrong
        assert producer.init(transaction_timeout=0) is wrong
        assert producer.init(transaction_timeout=1_000) is NONE
        assert producer.init(transactional_id="") is ErrorCode.invalid_request
        half: dict[str, Any] = {"producer_id": 5, "producer_epoch": -1}
        assert producer.init(**half) is ErrorCode.invalid_request


def test_describing_and_listing(tmp_path: Path) -> None:
    def listed(**filters: Any) -> list[str]:
        answer = ask(node, ApiKey.LIST_TRANSACTIONS, 2, **{"duration_filter": -1, **filters})
        assert answer.error_code is NONE
        return [found.transactional_id for found in answer.transaction_states]

    with running(tmp_path) as (node, _):
        producers = {name: AskingProducer(node, 2, name) for name in ("a", "ab", "c")}
        for producer in producers.values():
            producer.init()
        producers["a"].send(b"1", partition=1)
        producers["c"].send(b"1")
        producers["c"].end(committed=True)
        asked = ["a", "c", "nobody", ""]
        answer = ask(node, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=asked)
        first, ended, nobody, empty = answer.transaction_states
        assert (first.transaction_state, first.producer_epoch) == ("Ongoing", 0)
        assert [(t.topic, tuple(t.partitions)) for t in first.topics] == [("t", (1,))]
        assert (ended.transaction_state, ended.producer_epoch) == ("CompleteCommit", 1)
        assert nobody.error_code is ErrorCode.transactional_id_not_found
        assert empty.error_code is ErrorCode.invalid_request
        assert listed() == ["a", "ab", "c"]
        assert listed(state_filters=["Empty", "Ongoing"]) == ["a", "ab"]
        assert listed(producer_id_filters=[producers["c"].identity.producer_id]) == ["c"]
        assert listed(transactional_id_pattern="a.*") == ["a", "ab"]
        assert listed(duration_filter=3_600_000, state_filters=["Ongoing"]) == []
        answer = ask(node, ApiKey.LIST_TRANSACTIONS, 1, state_filters=["Odd"], duration_filter=-1)
        assert answer.unknown_state_filters == ("Odd",)
        wrong = ask(node, ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern="(")
        assert wrong.error_code is ErrorCode.invalid_regular_expression
        described = ask(
            node,
            ApiKey.DESCRIBE_PRODUCERS,
            0,
            topics=[{"name": "t", "partition_indexes": [0, 1]}],
        )
        starts = [
            p.active_producers[0].current_txn_start_offset for p in described.topics[0].partitions
        ]
        assert starts == [-1, 0]


def test_the_transaction_version_is_a_feature(tmp_path: Path) -> None:
    def features(version: int) -> tuple[Any, Any, int]:
        software = {"client_software_name": "n", "client_software_version": "1"}
        answer = ask(node, ApiKey.API_VERSIONS, version, **software)
        supported = [(f.name, f.min_version, f.max_version) for f in answer.supported_features]
        finalized = [(f.name, f.max_version_level) for f in answer.finalized_features]
        return supported, finalized, answer.finalized_features_epoch

    with running(tmp_path, 1) as (node, _):
        supported, finalized, epoch = features(4)
        assert supported == [("transaction.version", 0, 2)]
        assert finalized == [("transaction.version", 1)]
        node.transactions.set_version(2)
        supported, finalized, later = features(3)
        assert (supported, finalized) == ([], [("transaction.version", 2)])
        assert later > epoch
        node.transactions.set_version(0)
        assert features(4)[1] == []


def test_a_disk_that_fails_delays_the_marker(tmp_path: Path) -> None:
    with running(tmp_path) as (node, log):
        producer = AskingProducer(node, 2)
        producer.init()
        producer.send(b"a")
        log.fail_with(OSError("no disk"))
        assert producer.end(committed=True) is NONE, "it is decided"
        assert producer.send(b"b") is ErrorCode.concurrent_transactions
        log.fail_with(None)
        while producer.init(producer.identity) is ErrorCode.concurrent_transactions:
            pass  # until the marker is tried again
        assert values(log) == [b"a"]


def test_the_name_that_a_client_chose_is_logged_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as (node, log):
        producer = AskingProducer(node, 2, "x\n\x1b[31m")
        producer.init()
        producer.send(b"a")
        log.fail_with(OSError("no disk"))
        assert producer.end(committed=True) is NONE
        log.fail_with(None)
        while producer.init(producer.identity) is ErrorCode.concurrent_transactions:
            pass  # until the marker is tried again
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if "has no marker of" in text]
    assert all(text.isprintable() for text in told)


def test_the_latest_offset_by_isolation_level(tmp_path: Path) -> None:
    def latest(level: int) -> int:
        part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        topics = [{"name": "t", "partitions": [part]}]
        answer = ask(node, ApiKey.LIST_OFFSETS, 9, isolation_level=level, topics=topics)
        return int(answer.topics[0].partitions[0].offset)

    with running(tmp_path) as (node, log):
        producer = AskingProducer(node, 2)
        producer.init()
        producer.send(b"a")
        assert (latest(0), latest(1)) == (1, 0)
        producer.end(committed=False)
        assert latest(1) == log.end_offset == 2
