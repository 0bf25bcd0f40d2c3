"""One process for fifty tenants, each with a producer; one tenant's cluster is not there."""

from __future__ import annotations

import json
import sys

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

TENANTS, RECORDS, GONE = 50, 5, 17

producers: dict[int, KafkaProducer] = {}
noticed: dict[str, object] = {}
for tenant in range(TENANTS):
    servers = sys.argv[1] if tenant != GONE else "127.0.0.1:9"
    try:
        producers[tenant] = KafkaProducer(
            bootstrap_servers=servers,
            client_id=f"tenant-{tenant}",
            bootstrap_timeout_ms=30_000 if tenant != GONE else 1_000,
        )
    except KafkaTimeoutError:
        noticed["gone"] = tenant
for record in range(RECORDS):
    for tenant, producer in producers.items():
        producer.send(f"tenant-{tenant % 5}", b"%d of %d" % (record, tenant), key=b"%d" % tenant)
for producer in producers.values():
    producer.flush(timeout=30)
    producer.close()
try:
    producers[0].send("tenant-0", b"late")
except KafkaError as error:
    noticed["late"] = type(error).__name__
print(json.dumps([len(producers), noticed]))
