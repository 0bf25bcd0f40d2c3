"""A process in which every import that is not the main thread's is told of.

Run as ``python -m tests.integration.lifecycle.late_imports BOOTSTRAP PORT_OF_NOBODY``; prints the
thread and the module of each. Its producers have everything left to do when the process ends.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import Any

from kprod import KafkaProducer
from kprod.errors import KprodError

TOPIC = "imports"
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


def tell(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: called, among others, for each module that was not imported before."""
    if event == "import" and threading.current_thread() is not threading.main_thread():
        print(threading.current_thread().name, arguments[0], flush=True)


def main(bootstrap: str, port_of_nobody: str) -> None:
    kept = []
    lost = KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{port_of_nobody}", request_timeout_ms=100, max_block_ms=200
    )
    for codec in CODECS:
        options: Any = {} if codec is None else {"compression_type": codec}
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, linger_ms=60_000, request_timeout_ms=5_000, **options
        )
        kept.append(producer)
        for number in range(10):
            producer.send(TOPIC, b"%d" % number, key=b"k", headers=[("h", b"v")])
    with suppress(KprodError):
        lost.send(TOPIC, b"to nobody")
    sys.addaudithook(tell)
    print("ends")


if __name__ == "__main__":
    main(*sys.argv[1:])
