"""The JSON that stats_cb gets: librdkafka's names for what kprod counts"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kprod.clock import SystemClock
from kprod.producer import KafkaProducer


def statistics(native: KafkaProducer, waiting: int, began: float) -> str:
    """A JSON object in the shape of librdkafka's STATISTICS.md; ``began``: when the client was
    made, in seconds on the monotonic clock. What kprod does not count is left out.
    """
    metrics, clock = native.metrics(), SystemClock()
    own, snapshot = metrics["producer-metrics"], native.metadata.snapshot
    told: dict[str, Any] = {
        "name": f"{native.config.client_id}#producer",
        "client_id": native.config.client_id,
        "type": "producer",
        "ts": int(clock.monotonic() * 1_000_000),
        "time": clock.wall_ms() // 1000,
        "age": int((clock.monotonic() - began) * 1_000_000),
        "replyq": 0,
        "msg_cnt": waiting,
        "msg_size": int(own["buffer-total-bytes"] - own["buffer-available-bytes"]),
        "msg_size_max": int(own["buffer-total-bytes"]),
        "tx": int(own["request-total"]),
        "tx_bytes": int(own["outgoing-byte-total"]),
        "rx_bytes": int(own["incoming-byte-total"]),
        "txmsgs": int(own["record-send-total"]),
        "txmsg_bytes": int(own["byte-total"]),
        "metadata_cache_cnt": len(snapshot.topics),
        "brokers": {},
        "topics": {},
    }
    for broker in snapshot.brokers.values():
        name = f"{broker.host}:{broker.port}/{broker.node_id}"
        node = metrics.get(f"producer-node-metrics.node-{broker.node_id}", {})
        told["brokers"][name] = _broker(name, broker.node_id, node)
    for name, topic in snapshot.topics.items():
        partitions = {
            str(p.partition): {"partition": p.partition, "leader": p.leader_id}
            for p in topic.partitions
        }
        told["topics"][name] = {"topic": name, "partitions": partitions}
    return json.dumps(told)


def _broker(name: str, node_id: int, node: Mapping[str, float]) -> dict[str, Any]:
    mean = node.get("request-latency-avg", 0.0)
    most = node.get("request-latency-max", 0.0)
    return {
        "name": name,
        "nodeid": node_id,
        "source": "learned",
        "state": "UP" if node else "INIT",
        "tx": int(node.get("request-total", 0)),
        "txbytes": int(node.get("outgoing-byte-total", 0)),
        "rxbytes": int(node.get("incoming-byte-total", 0)),
        "rtt": {"avg": int(1000 * mean), "max": int(1000 * most)},
    }
