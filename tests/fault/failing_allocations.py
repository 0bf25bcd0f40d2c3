"""A process in which allocations fail in one call of a producer after the other.

``python -m tests.fault.failing_allocations BOOTSTRAP TOPIC CALLS LAST STEP WIDTH``: each of the
calls, divided by commas, is made for every STEPth position below LAST, and WIDTH allocations in a
row fail from there on, in whatever thread. Afterwards the producer works, or it has ended and says
so: then another one goes on. Says each position on stderr before it is tried, so that a crash tells
where; prints, as JSON, how many calls met a failure, how many producers ended, and what was told of
each record, by number.
"""

from __future__ import annotations

import _testcapi  # type: ignore[import-not-found]
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kprod import KafkaProducer
from kprod.errors import KprodError, KprodTimeoutError, ProducerClosedError
from tests.support.failing_malloc import keep_code

SECONDS = 20
OPTIONS: dict[str, Any] = {"batch_size": 2000, "linger_ms": 2}


class Sent:
    """The records of this process, by number, and what was told of each."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.told: dict[int, str] = {}
        self._futures: dict[int, Any] = {}

    def value(self) -> bytes:
        """The next number, as a value; it is not known to be sent."""
        number = len(self.told)
        self.told[number] = "refused"
        return b"%d" % number

    def queued(self, future: Any) -> Any:
        """The last number is on its way."""
        number = len(self.told) - 1
        self.told[number] = "queued"
        self._futures[number] = future
        return future

    def settle(self) -> None:
        """The producer is closed: every future has its outcome."""
        for number, future in self._futures.items():
            if not future.is_done:
                self.told[number] = "without an outcome"
            elif future.succeeded():
                self.told[number] = "stored"
            else:
                self.told[number] = future.exception.persisted.name


class Calls:
    """What is done with a producer while allocations fail. Each method returns the call to make."""

    def __init__(self, producer: KafkaProducer, sent: Sent) -> None:
        self.producer = producer
        self._sent = sent
        self.called = 0

    def send(self) -> Callable[[], object]:
        value = self._sent.value()
        return lambda: self.producer.send(self._sent.topic, value, key=b"k")

    def get(self) -> Callable[[], object]:
        future = self._queue()
        return lambda: future.get(SECONDS)

    def flush(self) -> Callable[[], object]:
        self._queue()
        return lambda: self.producer.flush(SECONDS)

    def partitions_for(self) -> Callable[[], object]:
        return lambda: self.producer.partitions_for(self._sent.topic)

    def add_callback(self) -> Callable[[], object]:
        future = self._queue()
        return lambda: future.add_both(self._count)

    def turn(self) -> Callable[[], object]:
        """This thread allocates next to nothing: it is the sender's that meets the failures."""
        self._queue()
        return partial(time.sleep, 0.01)

    def send_many(self) -> Callable[[], object]:
        values = [b"many"] * 50
        return lambda: self.producer.send_many(self._sent.topic, values)

    def send_arrow(self) -> Callable[[], object]:
        import pyarrow as pa

        rows = pa.RecordBatch.from_pydict({"value": [b"arrow"] * 50})
        return lambda: self.producer.send_arrow(self._sent.topic, rows)

    def _queue(self) -> Any:
        value = self._sent.value()
        return self._sent.queued(self.producer.send(self._sent.topic, value))

    def _count(self, _: object) -> None:
        self.called += 1


def outcome(call: Callable[[], object], first: int, width: int) -> object:
    """What the call returns while allocations fail, or the error that tells of them.

    A time that is over tells of none: then the call waited for what does not come.
    """
    _testcapi.set_nomemory(first, first + width)
    try:
        return call()
    except KprodTimeoutError:
        raise
    except (MemoryError, RuntimeError, SystemError, KprodError) as error:
        return error  # Python's own are "can't allocate lock" and "returned NULL without ..."
    finally:
        _testcapi.remove_mem_hooks()


def try_call(bootstrap: str, name: str, positions: range, width: int, sent: Sent) -> dict[str, int]:
    """Make the call at every position.

    How many met a failure, how many callbacks were lost, and how many producers have ended.
    """
    failures = added = ended = 0
    producer = KafkaProducer(bootstrap_servers=bootstrap, **OPTIONS)
    calls = Calls(producer, sent)
    sent.queued(producer.send(sent.topic, sent.value())).get(SECONDS)
    for position in positions:
        print(name, position, file=sys.stderr, flush=True)
        if name == "close":
            producer = KafkaProducer(bootstrap_servers=bootstrap, **OPTIONS)
            sent.queued(producer.send(sent.topic, sent.value())).get(SECONDS)
            result = outcome(partial(producer.close, SECONDS), position, width)
            producer.close(SECONDS)
        else:
            result = outcome(getattr(calls, name)(), position, width)
            if name == "send" and not isinstance(result, Exception):
                sent.queued(result)
            added += name == "add_callback" and not isinstance(result, Exception)
            try:
                sent.queued(producer.send(sent.topic, sent.value())).get(SECONDS)
            except ProducerClosedError as error:
                if not isinstance(error.__cause__, Exception):
                    raise
                producer.close(SECONDS)
                producer = calls.producer = KafkaProducer(bootstrap_servers=bootstrap, **OPTIONS)
                ended += 1
            producer.flush(SECONDS)
        failures += isinstance(result, Exception)
    producer.close(SECONDS)
    return {"failures": failures, "lost": added - calls.called, "ended": ended}


def main(bootstrap: str, topic: str, names: str, last: int, step: int, width: int) -> None:
    keep_code()
    sent = Sent(topic)
    said: dict[str, Any] = {}
    for number, name in enumerate(names.split(",")):
        positions = range(number % step, last, step)
        said[name] = try_call(bootstrap, name, positions, width, sent)
    sent.settle()
    print(json.dumps({"calls": said, "told": sent.told}))


if __name__ == "__main__":
    server, where, what, *numbers = sys.argv[1:]
    main(server, where, what, *map(int, numbers))
