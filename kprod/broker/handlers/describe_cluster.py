"""DescribeCluster (60)."""

from __future__ import annotations

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node


def describe_cluster(call: Call, node: Node) -> Message:
    """The one node, which is its own controller."""
    return {
        "cluster_id": node.cluster_id,
        "controller_id": node.state.controller,
        "brokers": [
            {**found, "broker_id": found["node_id"]} for found in node.endpoints(call.session)
        ],
    }
