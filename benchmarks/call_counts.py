"""How many Python functions a call enters, in how many files

    python -m benchmarks.call_counts [-v]

counts by ``sys.setprofile`` what a warm producer with default options does against the embedded
broker: for bulk calls of 20,000 rows of 100 bytes in the caller's thread, for a lone record from
``send`` to its outcome and for a transaction of one record in the producer's threads as well.
Compiled functions are not seen. ``-v`` names what was called most often.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType

import pyarrow as pa

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker

ROWS = 20_000
PARTITIONS = 6
ONCE = 20
"""Times that a lone record and a transaction are repeated, for turns of the sender differ."""
QUIET_SECONDS = 0.02
PRODUCER_THREADS = "kprod-sender", "kprod-callbacks"


class CallCounter:
    """Counts the functions that threads enter while ``of`` runs, by file and name."""

    def __init__(self) -> None:
        self._entered: Counter[tuple[str, str]] = Counter()
        self._runs = False

    def follow_new_threads(self) -> None:
        """Also count what the threads of producers enter that are made from now on."""
        threading.setprofile(self._enter_in_sender)

    def of(self, work: Callable[[], object]) -> Counter[tuple[str, str]]:
        """What this thread and those that are followed enter during ``work``."""
        self._entered.clear()
        before = sys.getprofile()
        self._runs = True
        sys.setprofile(self._enter)
        try:
            work()
        finally:
            sys.setprofile(before)
            self._runs = False
        return self._entered.copy()

    def _enter(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and self._runs and code.co_filename != __file__:
            self._entered[code.co_filename, code.co_qualname] += 1

    def _enter_in_sender(self, frame: FrameType, event: str, argument: object) -> None:
        if self._runs and threading.current_thread().name.startswith(PRODUCER_THREADS):
            self._enter(frame, event, argument)


def main() -> None:
    """Print the counts of each kind of call, and what was called most often."""
    with EmbeddedBroker(topics={"t": PARTITIONS}) as broker:
        servers = broker.bootstrap_servers
        with KafkaProducer(bootstrap_servers=servers) as producer:
            for name, work in _bulk_calls(producer).items():
                for _ in range(3):
                    work()
                    producer.flush(60)
                _tell(name, CallCounter().of(work), 1)
                producer.flush(60)
        counter = CallCounter()
        counter.follow_new_threads()
        with KafkaProducer(bootstrap_servers=servers) as producer:
            _repeat("a lone record", counter, lambda: producer.send("t", b"x" * 100).get(10))
        with KafkaProducer(bootstrap_servers=servers, transactional_id="counted") as producer:
            producer.init_transactions()
            _repeat("a transaction", counter, lambda: _transact(producer))


def _bulk_calls(producer: KafkaProducer) -> dict[str, Callable[[], object]]:
    values = [b"%0100d" % number for number in range(ROWS)]
    keys = [b"key-%d" % (number % 1_000) for number in range(ROWS)]
    rows = pa.record_batch({"value": values, "key": keys})
    return {
        "send_arrow": lambda: producer.send_arrow("t", rows),
        "send_arrow, keyed": lambda: producer.send_arrow("t", rows, key="key"),
        "send_many": lambda: producer.send_many("t", values),
        "send_many, keyed": lambda: producer.send_many("t", values, keys=keys),
    }


def _transact(producer: KafkaProducer) -> None:
    producer.begin_transaction()
    producer.send("t", b"x" * 100)
    producer.commit_transaction()


def _repeat(name: str, counter: CallCounter, work: Callable[[], object]) -> None:
    def repeated() -> None:
        for _ in range(ONCE):
            work()
            time.sleep(QUIET_SECONDS)  # what the sender does after the outcome counts as well

    repeated()
    _tell(name, counter.of(repeated), ONCE)


def _tell(name: str, entered: Counter[tuple[str, str]], times: int) -> None:
    files = {file for file, _ in entered}
    print(f"{name}: {entered.total() / times:.0f} calls over {len(files)} files")
    for (file, function), count in entered.most_common(5 if "-v" in sys.argv else 0):
        print(f"  {count / times:6.1f} {function} ({file})")


if __name__ == "__main__":
    main()
