"""One request of every API, with the fields of all versions."""

from __future__ import annotations

from kprod.broker.protocol.api_key import VERSIONS, ApiKey
from kprod.broker.protocol.messages import Message
from tests.support.apache_kafka.same_answers import requests

EVERY: list[tuple[ApiKey, Message]] = [(api, values) for api, _, values in requests("t")]
"""The requests that are compared with Apache Kafka."""
OTHERS: Message = {
    "transactional_id": "x",
    "transactional_ids": ["x"],
    "v3_and_below_transactional_id": "x",
    "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
    "group_id": "g",
    "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}],
    "committed": True,
    "mechanism": "PLAIN",
    "auth_bytes": b"user",
    "resources": [{"resource_type": 2, "resource_name": "t"}],
    "client_software_name": "n",
    "client_software_version": "1",
}
"""Fields for all other APIs: each handler has something to do."""
REQUESTS: dict[ApiKey, Message] = dict.fromkeys(VERSIONS, OTHERS) | dict(reversed(EVERY))
EVERY += [(api, OTHERS) for api in VERSIONS.keys() - dict(EVERY).keys()]
EVERY_VERSION = [
    (api, version)
    for api, span in VERSIONS.items()
    for version in range(span.accepted_from, span.highest + 1)
]
