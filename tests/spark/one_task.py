"""One task of a job without Spark: its report, and the stored records."""

from __future__ import annotations

from typing import Any

from kprod.admin import read_topic
from kprod.spark import partition_writer


def report_of(servers: str, topic: str | None, items: Any, **options: Any) -> dict[str, Any]:
    (report,) = partition_writer(topic, bootstrap_servers=servers, **options)(iter(items))
    found: dict[str, Any] = report if isinstance(report, dict) else report.to_pylist()[0]
    return found


def stored(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values in the topic, one partition after the other."""
    return [(record.key, record.value) for _, record in read_topic(servers, topic)]


def values(servers: str, topic: str) -> list[bytes]:
    return sorted(value or b"" for _, value in stored(servers, topic))
