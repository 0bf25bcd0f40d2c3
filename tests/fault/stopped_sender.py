"""A process that is stopped while it sends, and whether what it then says of its records is true.

Run as ``python -m tests.fault.stopped_sender BOOTSTRAP TOPIC DELIVERY_TIMEOUT_MS``. Says "sending",
sends until it was stopped and continued, then prints how many records were stored, not stored, and
maybe stored, as JSON.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time

from kprod import KafkaProducer
from tests.integration.lifecycle.account import Account

PARTITIONS = 2
BURST = 50


def main(bootstrap: str, topic: str, delivery_timeout_ms: str) -> None:
    continued = threading.Event()
    signal.signal(signal.SIGCONT, lambda *_: continued.set())
    with KafkaProducer(
        bootstrap_servers=bootstrap,
        linger_ms=0,
        batch_size=1000,
        request_timeout_ms=200,
        delivery_timeout_ms=int(delivery_timeout_ms),
        retry_backoff_ms=10,
    ) as producer:
        account = Account(producer, topic, PARTITIONS)
        account.send(BURST)
        producer.flush(20)
        print("sending", flush=True)
        while not continued.is_set():
            account.send(BURST)
            time.sleep(0.001)
        account.send(BURST)
        producer.flush(20)
    print(json.dumps(account.check_against(bootstrap)))


if __name__ == "__main__":
    main(*sys.argv[1:])
