"""Making, finding, extending and removing topics."""

from __future__ import annotations

import shutil
import threading
import uuid
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directories import LogDirectories
from kprod.broker.node import Node
from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.topics import Topics, is_legal_name
from kprod.errors import BrokerError
from kprod.types import TopicPartition
from tests.unit.broker.logs import append, values
from tests.unit.broker.nodes import ask, running_node


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "-"])
def test_legal_names(name: str) -> None:
    assert is_legal_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n", "a:b"])
def test_illegal_names(name: str) -> None:
    assert not is_legal_name(name)


def test_names_that_metrics_could_not_tell_apart(node: Node) -> None:
    node.topics.create("a.b_c", 1)
    for name in ("a_b.c", "a_b_c"):
        with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
            node.topics.create(name, 1)
    node.topics.create("a-b_c", 1)
    # A client that only asks for it is not told why, as the controller makes it later.
    asked = {"topics": [{"name": "a_b.c"}], "allow_auto_topic_creation": True}
    (found,) = ask(node, ApiKey.METADATA, 8, **asked).topics
    assert found.error_code == ErrorCode.unknown_topic_or_partition


def test_a_half_made_topic_is_completed(tmp_path: Path) -> None:
    logs = LogDirectories([tmp_path], LogConfig())
    topic_id = uuid.uuid4()
    for number in (5, 4):
        logs.create(TopicPartition("t", number), topic_id)
    (tmp_path / "t-3").mkdir()
    logs.abandon()
    with running_node(tmp_path) as node:
        (topic,) = node.topics.all()
        assert topic.id == topic_id
        assert [log.where.partition for log in topic.partitions] == list(range(6))


def test_many_who_want_the_same_topic_get_the_same(node: Node) -> None:
    found: list[uuid.UUID] = []
    threads = [
        threading.Thread(target=lambda: found.append(node.topics.find_or_create("t", 2).id))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_deleted_topic_comes_back_empty_and_with_another_id(node: Node) -> None:
    old = node.topics.create("t", 2)
    append(old.partitions[0], b"gone")
    node.topics.delete("t", 0)
    assert node.topics.find("t") is None
    with pytest.raises(BrokerError):
        append(old.partitions[0], b"too late")
    new = node.topics.create("t", 1)
    assert new.id != old.id
    assert values(new.partitions[0]) == []


def test_a_disk_that_refuses_is_a_storage_error(tmp_path: Path) -> None:
    logs = LogDirectories([tmp_path / "data"], LogConfig())
    topics = Topics(logs)
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
        topics.create("t", 1)
    logs.abandon()
