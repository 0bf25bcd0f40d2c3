"""What a producer keeps of topics that it used once.

Run as ``python -m tests.integration.lifecycle.unused_topics BOOTSTRAP TOPICS IDLE``: a record for
each of so many topics, then for ``IDLE`` seconds to one of them only. First some others, to fill
caches. Prints, as JSON, what the process holds at the beginning, meanwhile and afterwards.
"""

from __future__ import annotations

import json
import sys
import time
import tracemalloc

from kprod import KafkaProducer
from tests.integration.lifecycle.leaks import held

IN_USE = "in-use"
WARM = 1100
"""More names than any cache of the producer's holds."""


class Work:
    """Uses topics, and waits until the producer has forgotten them, ``idle`` seconds later."""

    def __init__(self, producer: KafkaProducer, idle: int) -> None:
        self._producer = producer
        self._idle = idle

    def use(self, kind: str, topics: int) -> None:
        """Send one record to each."""
        futures = [self._producer.send(f"{kind}-{n:05}", b"value") for n in range(topics)]
        self._producer.flush(60)
        assert all(future.succeeded() for future in futures)

    def let_go(self) -> None:
        """Wait until only the topic in use is left, in what is known and in the metrics."""
        while len(self._topics()) > 1:
            self._producer.send(IN_USE, b"value").get(20)
            time.sleep(self._idle / 50)

    def _topics(self) -> set[str]:
        known = {topic.name for topic in self._producer.cluster}
        groups = [name.partition("producer-topic-metrics.") for name in self._producer.metrics()]
        return known | {name for _, found, name in groups if found}


def say(what: str) -> tuple[str, int, int]:
    """The resident bytes, and those that are in use.

    Freed memory may stay resident: the C library and Python use it again, for the next topics.
    """
    resident = held().memory
    return what, resident, tracemalloc.get_traced_memory()[0]


def main(bootstrap: str, topics: int, idle: int) -> None:
    tracemalloc.start()
    with KafkaProducer(
        bootstrap_servers=bootstrap,
        linger_ms=0,
        metadata_max_idle_ms=idle * 1000,
        metadata_max_age_ms=idle * 1000 // 10,
    ) as producer:
        work = Work(producer, idle)
        work.use("warm", WARM)
        work.let_go()
        measured = [say("before")]
        work.use("topic", topics)
        measured.append(say("meanwhile"))
        work.let_go()
        measured.append(say("afterwards"))
    print(json.dumps(measured))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
