"""DescribeCluster (60)."""

from __future__ import annotations

from kprod.broker.call import Call
from kprod.broker.log.log_directory import NODE_ID
from kprod.broker.messages import Message
from kprod.broker.node import Node


def describe_cluster(call: Call, node: Node) -> Message:
    """The one node, which is its own controller."""
    return {
        "cluster_id": node.cluster_id,
        "controller_id": NODE_ID,
        "brokers": [{**node.endpoint, "broker_id": NODE_ID}],
    }
