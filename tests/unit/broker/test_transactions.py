"""Transactions request by request, by both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker import TransactionConfig
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.node import Node
from kprod.broker.protocol.api_key import ApiKey
from tests.unit.broker.asking_producer import AskingProducer, check_answers
from tests.unit.broker.nodes import ask, running_node

NONE = ErrorCode.none


@contextmanager
def running(path: Path, version: int = 2, **options: Any) -> Iterator[tuple[Node, PartitionLog]]:
    config = TransactionConfig(transaction_version=version, **options)
    with running_node(path, transaction_config=config) as node:
        yield node, node.topics.create("t", 2).partitions[0]


def test_every_step_of_a_producers_life(tmp_path: Path) -> None:
    """``test_apache_kafka_answers`` asks Apache Kafka the same."""
    with running(tmp_path) as (node, _):
        node.topics.create("one", 1)
        asks = partial(ask, node)

        def patient(api: ApiKey, version: int, **values: Any) -> Any:
            while "concurrent_transactions" in repr(answer := asks(api, version, **values)):
                pass
            return answer

        check_answers(asks, patient, "one", "x")


def test_describing_and_listing(tmp_path: Path) -> None:
    def listed(**filters: Any) -> list[str]:
        answer = ask(node, ApiKey.LIST_TRANSACTIONS, 2, **{"duration_filter": -1, **filters})
        assert answer.error_code is NONE
        return [found.transactional_id for found in answer.transaction_states]

    with running(tmp_path) as (node, _):
        producers = {name: AskingProducer(partial(ask, node), 2, name) for name in ("a", "ab", "c")}
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


def test_a_disk_that_fails_delays_the_marker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as (node, log):
        producer = AskingProducer(partial(ask, node), 2, "x\n\x1b[31m")
        producer.init()
        producer.send(b"a")
        log.fail_with(OSError("no disk"))
        assert producer.end(committed=True) is NONE, "it is decided"
        assert producer.send(b"b") is ErrorCode.concurrent_transactions
        log.fail_with(None)
        while producer.init(producer.identity) is ErrorCode.concurrent_transactions:
            pass  # until the marker is tried again
        assert [record.value for record in log.records(committed=True)] == [b"a"]
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if "has no marker of" in text]
    assert all(text.isprintable() for text in told), "a name that a client chose is in one line"


def test_the_latest_offset_by_isolation_level(tmp_path: Path) -> None:
    def latest(level: int) -> int:
        part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        topics = [{"name": "t", "partitions": [part]}]
        answer = ask(node, ApiKey.LIST_OFFSETS, 9, isolation_level=level, topics=topics)
        return int(answer.topics[0].partitions[0].offset)

    with running(tmp_path) as (node, log):
        producer = AskingProducer(partial(ask, node), 2)
        producer.init()
        producer.send(b"a")
        assert (latest(0), latest(1)) == (1, 0)
        producer.end(committed=False)
        assert latest(1) == log.end_offset == 2
