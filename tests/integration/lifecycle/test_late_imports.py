"""The sender's thread imports nothing: it works on while the interpreter ends.

An import takes its time, and locks that a thread which is gone may hold. One of many modules after
Ctrl-C made named tuples, which reset CPython's mark of an interrupt that nobody had caught: the
process ended with exit code 1.
"""

from __future__ import annotations

from kprod.admin import end_offsets
from kprod.broker import EmbeddedBroker
from tests.support.ports import free_port
from tests.support.programs import run_python

ENDS = """
import sys, threading
from contextlib import suppress
from kprod import KafkaProducer
from kprod.errors import KprodError

def tell(event, arguments):
    if event == "import" and threading.current_thread() is not threading.main_thread():
        print(threading.current_thread().name, arguments[0], flush=True)

servers, nobody = sys.argv[1:]
lost = KafkaProducer(bootstrap_servers=nobody, request_timeout_ms=100, max_block_ms=200)
kept = []
for codec in (None, "gzip", "snappy", "lz4", "zstd"):
    producer = KafkaProducer(
        bootstrap_servers=servers,
        linger_ms=60_000,
        request_timeout_ms=5_000,
        compression_type=codec,
    )
    kept.append(producer)
    for number in range(10):
        producer.send("t", b"%d" % number, key=b"k", headers=[("h", b"v")])
with suppress(KprodError):
    lost.send("t", b"to nobody")
sys.addaudithook(tell)
print("ends")
"""
"""A process whose producers have everything left to do at its end."""


def test_no_thread_of_the_producer_imports_a_module() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        ran = run_python("-c", ENDS, broker.bootstrap_servers, f"127.0.0.1:{free_port()}")
        assert ran.stdout.splitlines() == ["ends"]
        assert sum(end_offsets(broker.bootstrap_servers, "t").values()) == 50
