"""A table of a Producer's calls around close, in callbacks and in transactions.

A program: ``python -m tests.integration.lifecycle.confluent_calls MODULE SERVERS`` prints the
outcome of each row with ``confluent_kafka``, the reference, or ``kprod.confluent``.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka

from tests.support.forked_rows import CRASHES, WAITS, Row, main, outcome
from tests.support.ports import free_port

LONG = 20.0
DEADLOCK = "kprod raises instead of a deadlock"
ALLOWED = "a callback may poll with a timeout, and query a broker"
RUNS_ALL = "every callback runs even if one raised"
RAISES_ON_CLOSE = "a waiting call raises when the producer is closed"
WAITS_FOR_ALL = "flush() also waits for reports of the closing thread"
RAISES_FIRST = "the first exception is raised immediately; the other callbacks run in the next call"

Call = Callable[[Any], Any]
numbers = itertools.count()
silent = logging.Logger("silent")
silent.addHandler(logging.NullHandler())


def group() -> Any:
    """Group metadata of a confluent-kafka consumer."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    return consumer.consumer_group_metadata()


def offsets(producer: Any) -> None:
    producer.send_offsets_to_transaction([confluent_kafka.TopicPartition("t", 0, 1)], group(), LONG)


CALLS: dict[str, Call] = {
    "produce": lambda p: p.produce("t", b"value"),
    "produce_batch": lambda p: p.produce_batch("t", [{"value": b"value"}]),
    "poll()": lambda p: p.poll(),
    "poll(0)": lambda p: p.poll(0),
    "poll(0.1)": lambda p: p.poll(0.1),
    "flush()": lambda p: p.flush(),
    "flush(0)": lambda p: p.flush(0),
    "flush(0.1)": lambda p: p.flush(0.1),
    "purge": lambda p: p.purge(),
    "list_topics": lambda p: p.list_topics("t"),
    "cluster_id": lambda p: p.cluster_id(),
    "set_sasl_credentials": lambda p: p.set_sasl_credentials("user", "password"),
    "len": len,
    "bool": bool,
    "close": lambda p: p.close(),
    "with": lambda p: p.__exit__(None, None, None),
    "init_transactions": lambda p: p.init_transactions(LONG),
    "begin_transaction": lambda p: p.begin_transaction(),
    "send_offsets": offsets,
    "commit": lambda p: p.commit_transaction(LONG),
    "abort": lambda p: p.abort_transaction(LONG),
}
TRANSACTIONAL = ("init_transactions", "begin_transaction", "send_offsets", "commit", "abort")


def new_producer(module: Any, servers: str, **kwargs: Any) -> Any:
    options = {"bootstrap.servers": servers, "linger.ms": 5, "logger": silent}
    return module.Producer({**options, **{name.replace("_", "."): v for name, v in kwargs.items()}})


def in_transaction(module: Any, servers: str, name: str = "", **kwargs: Any) -> Any:
    name = name or f"{module.__name__}-{time.time_ns()}-{next(numbers)}"
    producer = new_producer(module, servers, transactional_id=name, **kwargs)
    producer.init_transactions(LONG)
    producer.begin_transaction()
    return producer


def without_broker(module: Any, **kwargs: Any) -> Any:
    """A producer without a broker, whose records expire after two seconds."""
    return new_producer(module, f"127.0.0.1:{free_port()}", message_timeout_ms=2000, **kwargs)


def in_thread(call: Callable[..., Any], *args: Any) -> tuple[threading.Thread, list[str]]:
    """Run a call in another thread; its outcome is appended to the list."""
    outcomes: list[str] = []
    thread = threading.Thread(target=lambda: outcomes.append(outcome(call, *args)), daemon=True)
    thread.start()
    return thread, outcomes


# Situations -----------------------------------------------------------------------------------


def after_close(call: Call) -> Callable[[Any, str], Any]:
    def run(module: Any, servers: str) -> str:
        producer = new_producer(module, servers)
        producer.close()
        return outcome(call, producer)

    return run


POLLS = ("poll(0)", "poll(0.1)")


def inside(name: str, outer: str = "flush()") -> Callable[[Any, str], Any]:
    """The call in the callback of the first of three records, run by another call."""

    def run(module: Any, servers: str) -> Any:
        transactional = {name, outer} & {*TRANSACTIONAL}
        # The long linger puts all three into one batch, even on a busy machine.
        make = in_transaction if transactional else new_producer
        producer = make(module, servers, linger_ms=20_000)
        outcomes: list[Any] = []
        ran: list[object] = []

        def report(_error: object, message: object) -> None:
            ran.append(message)
            if len(ran) > 1:
                return
            found = outcome(CALLS[name], producer)
            # How many others were acknowledged by then is random.
            if name in POLLS and found == str(len(ran) - 1):
                found = "the number of reports served"
            elif name == "flush(0)" and found == str(4 - len(ran)):
                found = "the number of reports left"
            outcomes.append(found)

        for _ in range(3):
            producer.produce("t", b"value", on_delivery=report)
        outcomes.append(outcome(CALLS[outer], producer))
        return [*outcomes, len(ran)]

    return run


def while_closing(name: str, *, queued: bool = False) -> Callable[[Any, str], Any]:
    """A call that waits for a record or a broker while another thread closes."""

    def run(module: Any, servers: str) -> Any:
        kwargs = {"transactional_id": "x"} if name in TRANSACTIONAL else {}
        idle = name == "poll()"  # errors of connections would be events
        producer = new_producer(module, servers) if idle else without_broker(module, **kwargs)
        if queued:
            producer.produce("t", b"value")
        thread, outcomes = in_thread(CALLS[name], producer)
        time.sleep(0.5)
        closing, closed = in_thread(producer.close)
        thread.join()
        closing.join()
        return [*outcomes, *closed]

    return run


def close_under_load(module: Any, servers: str) -> Any:
    """Every accepted record is reported, and producing threads are refused."""
    producer = new_producer(module, servers)
    accepted, reported, refused = itertools.count(), itertools.count(), []

    def produce() -> None:
        while True:
            try:
                producer.produce("t", b"value", on_delivery=lambda *_: next(reported))
                next(accepted)
                producer.poll(0)
            except BufferError:
                time.sleep(0.001)
            except RuntimeError as error:
                refused.append(str(error))
                return

    threads = [threading.Thread(target=produce, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    closed = outcome(producer.close)
    for thread in threads:
        thread.join()
    return [closed, refused, next(accepted) == next(reported)]


def produced_again(module: Any, servers: str) -> Any:
    """A callback run by ``close`` produces its record again, three times."""
    producer = new_producer(module, servers)
    reports: list[bytes] = []

    def report(_error: object, message: Any) -> None:
        reports.append(message.value())
        if len(reports) < 4:
            producer.produce("t", b"again", on_delivery=report)

    producer.produce("t", b"first", on_delivery=report)
    return [outcome(producer.close), len(reports)]


def raising(name: str) -> Callable[[Any, str], Any]:
    """Three callbacks that raise: outcome of the call and of the following ``close``."""

    def run(module: Any, servers: str) -> Any:
        producer = (in_transaction if name in TRANSACTIONAL else new_producer)(module, servers)
        reports = itertools.count()

        def report(_error: object, _message: object) -> None:
            next(reports)
            raise LookupError

        for _ in range(3):
            producer.produce("t", b"value", on_delivery=report)
        if name == "poll()":
            producer.list_topics("t")
            time.sleep(0.5)
        return [outcome(CALLS[name], producer), outcome(CALLS["close"], producer), next(reports)]

    return run


def served_by(name: str) -> Callable[[Any, str], Any]:
    """Which callbacks a transactional call runs, and whether in its own thread."""

    def run(module: Any, servers: str) -> Any:
        # Nothing is sent before the call: an abort finds both records queued.
        producer = in_transaction(module, servers, linger_ms=30_000)
        reports: list[Any] = []

        def report(error: Any, _message: object) -> None:
            reports.append([error and error.name(), threading.get_ident()])

        for _ in range(2):
            producer.produce("t", b"value", on_delivery=report)
        caller, outcomes = in_thread(CALLS[name], producer)
        caller.join()
        called = [[error, thread == caller.ident] for error, thread in reports]
        return [*outcomes, called, len(producer)]

    return run


def fenced(module: Any, servers: str) -> Any:
    """Commits of a producer after another one of the same id has begun."""
    name = f"{module.__name__}-{time.time_ns()}"
    older = in_transaction(module, servers, name)
    newer = new_producer(module, servers, transactional_id=name)
    newer.init_transactions(LONG)
    older.produce("t", b"value")
    return [outcome(CALLS["commit"], older) for _ in range(2)]


def close_in_transaction(module: Any, servers: str) -> Any:
    producer = in_transaction(module, servers, linger_ms=30_000)
    reports: list[str] = []
    for _ in range(2):
        producer.produce("t", b"v", on_delivery=lambda error, _: reports.append(error.name()))
    return [outcome(producer.close), reports]


# The table ------------------------------------------------------------------------------------

REFUSED = "RuntimeError"
RAISED = ["LookupError", "LookupError"]
FIRST, LAST = ["LookupError", "True", 1], ["LookupError", "True", 3]
STATE = "KafkaException _STATE"
ENDED = {"len": "0", "bool": "True", "close": "True", "with": "None"}

INSIDE: dict[str, tuple[Any, Any, str]] = {
    "produce": (["None", "0", 3], None, ""),
    "produce_batch": (["1", "0", 3], None, ""),
    "poll()": (WAITS, [STATE, "0", 3], DEADLOCK),
    "poll(0)": (CRASHES, ["the number of reports served", "0", 3], ALLOWED),
    "poll(0.1)": (CRASHES, ["the number of reports served", "0", 3], ALLOWED),
    "flush()": (WAITS, [STATE, "0", 3], DEADLOCK),
    "flush(0)": (CRASHES, ["the number of reports left", "0", 3], ALLOWED),
    "flush(0.1)": (CRASHES, [STATE, "0", 3], DEADLOCK),
    "purge": (["None", "0", 3], None, ""),
    "list_topics": (CRASHES, ["ClusterMetadata", "0", 3], ALLOWED),
    "cluster_id": (CRASHES, ["str", "0", 3], ALLOWED),
    "set_sasl_credentials": (CRASHES, ["None", "0", 3], ALLOWED),
    "len": (["3", "0", 3], None, ""),
    "close": (WAITS, [STATE, "0", 3], DEADLOCK),
    "with": (WAITS, [STATE, "0", 3], DEADLOCK),
    "begin_transaction": ([STATE, "0", 3], None, ""),
    "send_offsets": (CRASHES, ["None", "0", 3], ALLOWED),
    "commit": (WAITS, [STATE, "0", 3], DEADLOCK),
    "abort": (WAITS, [STATE, "0", 3], DEADLOCK),
}
PURGED = [["_PURGE_QUEUE", True]] * 2

ROWS = [
    *(
        Row(f"{name} after close", after_close(CALLS[name]), ENDED.get(name, REFUSED))
        for name in CALLS
    ),
    *(Row(f"{name} inside on_delivery", inside(name), *found) for name, found in INSIDE.items()),
    Row("produce inside on_delivery of close", inside("produce", "close"), ["None", "True", 3]),
    Row("len inside on_delivery of close", inside("len", "close"), ["0", "True", 3]),
    Row(
        "close inside on_delivery of close",
        inside("close", "close"),
        WAITS,
        [STATE, "True", 3],
        DEADLOCK,
    ),
    Row("produced again by on_delivery of close", produced_again, ["True", 4]),
    Row(
        "begin inside on_delivery of commit",
        inside("begin_transaction", "commit"),
        ["KafkaException _CONFLICT", "None", 3],
    ),
    Row(
        "commit inside on_delivery of commit",
        inside("commit", "commit"),
        CRASHES,
        [STATE, "None", 3],
        DEADLOCK,
    ),
    Row("poll(), and another thread closes", while_closing("poll()"), ["0", "True"]),
    Row(
        "flush(), and another thread closes",
        while_closing("flush()", queued=True),
        ["1", "True"],
        ["0", "True"],
        WAITS_FOR_ALL,
    ),
    Row(
        "cluster_id, and another thread closes",
        while_closing("cluster_id"),
        ["KafkaException _DESTROY", "True"],
    ),
    *(
        Row(
            f"{name}, and another thread closes",
            while_closing(name),
            WAITS,
            ["KafkaException _DESTROY", "True"],
            RAISES_ON_CLOSE,
        )
        for name in ("list_topics", "init_transactions")
    ),
    Row(
        "close while four threads produce",
        close_under_load,
        ["True", ["Producer has been closed"] * 4, True],
    ),
    Row("callbacks that raise in poll", raising("poll()"), [*RAISED, 2], [*RAISED, 3], RUNS_ALL),
    Row("callbacks that raise in flush", raising("flush()"), LAST, [*RAISED, 3], RAISES_FIRST),
    Row("callbacks that raise in close", raising("close"), FIRST, LAST, RUNS_ALL),
    Row("callbacks that raise in commit", raising("commit"), [*RAISED, 2], [*RAISED, 3], RUNS_ALL),
    Row("commit runs callbacks", served_by("commit"), ["None", [[None, True]] * 2, 0]),
    Row("abort runs callbacks", served_by("abort"), ["None", PURGED, 0]),
    Row("send_offsets runs none", served_by("send_offsets"), ["None", [], 2]),
    Row("fenced", fenced, ["KafkaException _FENCED fatal"] * 2),
    Row("close in a transaction", close_in_transaction, ["True", ["_PURGE_QUEUE"] * 2]),
]

if __name__ == "__main__":
    main(ROWS)
