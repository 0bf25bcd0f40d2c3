"""What a Consumer of librdkafka has for its group is read as librdkafka writes it."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from kprod import GroupMetadata
from kprod.errors import RecordTypeError
from kprod.transactional.group_offsets import group_member


def of_a_consumer(**more: Any) -> Any:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "a group", "log_level": 0, **more}
    consumer = confluent_kafka.Consumer(settings)
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def test_a_member_with_a_name_of_its_own() -> None:
    found = group_member(of_a_consumer(**{"group.instance.id": "one"}))
    assert found == GroupMetadata("a group", -1, "", "one")


def test_a_member_of_a_generation() -> None:
    written = b"CGMDv2:" + (7).to_bytes(4, "little") + b"g\0member-1\0\x01"
    assert group_member(written) == GroupMetadata("g", 7, "member-1", None)


@pytest.mark.parametrize(
    "found", [b"", b"CGMDv3:\0\0\0\0g\0m\0\x01", b"CGMDv2:\0\0\0\0g\0m\0", b"CGMDv2:", b"group"]
)
def test_another_layout_is_told_of(found: bytes) -> None:
    with pytest.raises(RecordTypeError, match=r"kprod\.GroupMetadata"):
        group_member(found)
