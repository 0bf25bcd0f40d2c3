"""The calls of a Producer around its end, in callbacks and in transactions: the table of all.

A program: ``python -m tests.integration.lifecycle.confluent_calls MODULE SERVERS`` prints what
becomes of each row with ``confluent_kafka`` or ``kprod.confluent``. The first is the judge.
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
DEADLOCK = "kprod raises where the call would wait for itself"
SAFE = "a callback may poll, within a limit, and ask a broker"
EVERY = "every callback runs, though one has raised"
HEARD = "a call that waits is told that the producer was closed"
WHOLE = "flush() waits for reports that the closing thread waits for as well"
AT_ONCE = "the first exception comes out at once, and the other callbacks run in the next call"

Call = Callable[[Any], Any]
numbers = itertools.count()
silent = logging.Logger("silent")
silent.addHandler(logging.NullHandler())


def group() -> Any:
    """What a consumer of confluent-kafka says about its group."""
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


def made(module: Any, servers: str, **more: Any) -> Any:
    options = {"bootstrap.servers": servers, "linger.ms": 5, "logger": silent}
    return module.Producer({**options, **{name.replace("_", "."): v for name, v in more.items()}})


def in_transaction(module: Any, servers: str, name: str = "", **more: Any) -> Any:
    name = name or f"{module.__name__}-{time.time_ns()}-{next(numbers)}"
    producer = made(module, servers, transactional_id=name, **more)
    producer.init_transactions(LONG)
    producer.begin_transaction()
    return producer


def alone(module: Any, **more: Any) -> Any:
    """A producer whose broker is not there, and that gives a record up after two seconds."""
    return made(module, f"127.0.0.1:{free_port()}", message_timeout_ms=2000, **more)


def beside(call: Callable[..., Any], *given: Any) -> tuple[threading.Thread, list[str]]:
    """Run a call in another thread; its outcome is in the list once it has ended."""
    heard: list[str] = []
    thread = threading.Thread(target=lambda: heard.append(outcome(call, *given)), daemon=True)
    thread.start()
    return thread, heard


# Situations -----------------------------------------------------------------------------------


def after_close(call: Call) -> Callable[[Any, str], Any]:
    def run(module: Any, servers: str) -> str:
        producer = made(module, servers)
        producer.close()
        return outcome(call, producer)

    return run


SERVED = ("poll(0)", "poll(0.1)")


def inside(name: str, outer: str = "flush()") -> Callable[[Any, str], Any]:
    """The call in the callback of the first of three records, run by another call."""

    def run(module: Any, servers: str) -> Any:
        transactional = {name, outer} & {*TRANSACTIONAL}
        # All three leave in one batch, however busy the machine is: no record lingers that long.
        make = in_transaction if transactional else made
        producer = make(module, servers, linger_ms=20_000)
        heard: list[Any] = []
        ran: list[object] = []

        def report(_error: object, message: object) -> None:
            ran.append(message)
            if len(ran) > 1:
                return
            found = outcome(CALLS[name], producer)
            # How many of the others were acknowledged by then is chance.
            if name in SERVED and found == str(len(ran) - 1):
                found = "as many as it served"
            elif name == "flush(0)" and found == str(4 - len(ran)):
                found = "those that are left"
            heard.append(found)

        for _ in range(3):
            producer.produce("t", b"value", on_delivery=report)
        heard.append(outcome(CALLS[outer], producer))
        return [*heard, len(ran)]

    return run


def while_closing(name: str, *, queued: bool = False) -> Callable[[Any, str], Any]:
    """A call that waits for a record, or for a broker that is not there, when another closes."""

    def run(module: Any, servers: str) -> Any:
        more = {"transactional_id": "x"} if name in TRANSACTIONAL else {}
        idle = name == "poll()"  # errors of connections would be events
        producer = made(module, servers) if idle else alone(module, **more)
        if queued:
            producer.produce("t", b"value")
        thread, heard = beside(CALLS[name], producer)
        time.sleep(0.5)
        closing, closed = beside(producer.close)
        thread.join()
        closing.join()
        return [*heard, *closed]

    return run


def closing_refuses(name: str) -> Callable[[Any, str], Any]:
    """A call that begins while another thread closes, and waits for a record."""

    def run(module: Any, _servers: str) -> str:
        producer = alone(module)
        producer.produce("t", b"value")
        beside(producer.close)
        time.sleep(0.5)
        return outcome(CALLS[name], producer)

    return run


def four_closes(module: Any, servers: str) -> Any:
    producer = made(module, servers)
    reports: list[Any] = []
    for _ in range(100):
        producer.produce("t", b"value", on_delivery=lambda error, _: reports.append(error))
    threads = [beside(producer.close) for _ in range(4)]
    for thread, _ in threads:
        thread.join()
    return [[heard for _, heard in threads], reports == [None] * 100]


def close_under_load(module: Any, servers: str) -> Any:
    """Every record that ``produce`` took is reported, and the threads that produce are refused."""
    producer = made(module, servers)
    taken, reported, refused = itertools.count(), itertools.count(), []

    def produce() -> None:
        while True:
            try:
                producer.produce("t", b"value", on_delivery=lambda *_: next(reported))
                next(taken)
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
    return [closed, refused, next(taken) == next(reported)]


def produced_again(module: Any, servers: str) -> Any:
    """A callback that ``close`` runs produces its record anew, three times."""
    producer = made(module, servers)
    reports: list[bytes] = []

    def report(_error: object, message: Any) -> None:
        reports.append(message.value())
        if len(reports) < 4:
            producer.produce("t", b"again", on_delivery=report)

    producer.produce("t", b"first", on_delivery=report)
    return [outcome(producer.close), len(reports)]


def raising(name: str) -> Callable[[Any, str], Any]:
    """Three callbacks that raise: what comes out of the call, and of ``close`` then."""

    def run(module: Any, servers: str) -> Any:
        producer = (in_transaction if name in TRANSACTIONAL else made)(module, servers)
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
    """Which reports a transactional call runs, and whether it does so in its own thread."""

    def run(module: Any, servers: str) -> Any:
        # Nothing leaves before the call: an abort finds both records in the queue.
        producer = in_transaction(module, servers, linger_ms=30_000)
        reports: list[Any] = []

        def report(error: Any, _message: object) -> None:
            reports.append([error and error.name(), threading.get_ident()])

        for _ in range(2):
            producer.produce("t", b"value", on_delivery=report)
        caller, heard = beside(CALLS[name], producer)
        caller.join()
        called = [[error, thread == caller.ident] for error, thread in reports]
        return [*heard, called, len(producer)]

    return run


def bounded_queue(module: Any, servers: str) -> Any:
    """Transactions without a poll: the queue of reports never fills up."""
    name = f"{module.__name__}-bounded-{time.time_ns()}"
    options = {"transactional_id": name, "queue_buffering_max_messages": 10}
    producer = made(module, servers, **options)
    producer.init_transactions(LONG)
    for number in range(10):
        producer.begin_transaction()
        for _ in range(4):
            producer.produce("t", b"value")
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(LONG)
    return outcome(producer.close)


def fenced(when: str) -> Callable[[Any, str], Any]:
    """A producer of the same name comes before or after the record; then the calls of the older."""

    def run(module: Any, servers: str) -> Any:
        name = f"{module.__name__}-{time.time_ns()}"
        older = in_transaction(module, servers, name)
        if when == "after the record":
            older.produce("t", b"value")
            older.flush(LONG)
        newer = made(module, servers, transactional_id=name)
        newer.init_transactions(LONG)
        if when == "before the record":
            older.produce("t", b"value")
        return [outcome(CALLS["commit"], older) for _ in range(2)]

    return run


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
    "poll(0)": (CRASHES, ["as many as it served", "0", 3], SAFE),
    "poll(0.1)": (CRASHES, ["as many as it served", "0", 3], SAFE),
    "flush()": (WAITS, [STATE, "0", 3], DEADLOCK),
    "flush(0)": (CRASHES, ["those that are left", "0", 3], SAFE),
    "flush(0.1)": (CRASHES, [STATE, "0", 3], DEADLOCK),
    "purge": (["None", "0", 3], None, ""),
    "list_topics": (CRASHES, ["ClusterMetadata", "0", 3], SAFE),
    "cluster_id": (CRASHES, ["str", "0", 3], SAFE),
    "set_sasl_credentials": (CRASHES, ["None", "0", 3], SAFE),
    "len": (["3", "0", 3], None, ""),
    "close": (WAITS, [STATE, "0", 3], DEADLOCK),
    "with": (WAITS, [STATE, "0", 3], DEADLOCK),
    "begin_transaction": ([STATE, "0", 3], None, ""),
    "send_offsets": (CRASHES, ["None", "0", 3], SAFE),
    "commit": (WAITS, [STATE, "0", 3], DEADLOCK),
    "abort": (WAITS, [STATE, "0", 3], DEADLOCK),
}
PURGED = [["_PURGE_QUEUE", True]] * 2
FENCED = "KafkaException _FENCED fatal"

ROWS = [
    *(
        Row(f"{name} after close", after_close(CALLS[name]), ENDED.get(name, REFUSED))
        for name in CALLS
    ),
    *(
        Row(f"{name} begun while another thread closes", closing_refuses(name), REFUSED)
        for name in ("produce", "poll(0)", "poll()", "flush()", "purge")
    ),
    Row("len while another thread closes", closing_refuses("len"), "0"),
    Row("close while another thread closes", closing_refuses("close"), "True"),
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
        WHOLE,
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
            HEARD,
        )
        for name in ("list_topics", "init_transactions")
    ),
    Row("four threads close", four_closes, [[["True"]] * 4, True]),
    Row(
        "close while four threads produce",
        close_under_load,
        ["True", ["Producer has been closed"] * 4, True],
    ),
    Row("callbacks that raise in poll", raising("poll()"), [*RAISED, 2], [*RAISED, 3], EVERY),
    Row("callbacks that raise in flush", raising("flush()"), LAST, [*RAISED, 3], AT_ONCE),
    Row("callbacks that raise in close", raising("close"), FIRST, LAST, EVERY),
    Row("callbacks that raise in commit", raising("commit"), [*RAISED, 2], [*RAISED, 3], EVERY),
    Row("commit runs callbacks", served_by("commit"), ["None", [[None, True]] * 2, 0]),
    Row("abort runs callbacks", served_by("abort"), ["None", PURGED, 0]),
    Row("send_offsets runs none", served_by("send_offsets"), ["None", [], 2]),
    Row("transactions without poll", bounded_queue, "True"),
    Row("fenced before the record", fenced("before the record"), [FENCED, FENCED]),
    Row("fenced after the record", fenced("after the record"), [FENCED, FENCED]),
    Row("close in a transaction", close_in_transaction, ["True", ["_PURGE_QUEUE"] * 2]),
]

if __name__ == "__main__":
    main(ROWS)
