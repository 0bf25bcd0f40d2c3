"""How ``send`` scales with threads: one producer for all of them, and one for each.

    python -m benchmarks.thread_scaling [--rounds N] [--records N] [--threads N [N ...]]

Each turn is a process of its own, against a sink that acknowledges at once, in another; the orders
of a round alternate. It says whether the interpreter has a GIL, so run it by a Python with one and
by one without. Stores ``results/thread-scaling.json``, or ``thread-scaling-free.json`` without a
GIL; a run of fewer records or rounds is stored with ``-quick``.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.measured_process import ROOT, figures_of
from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.sink.sink_process import SinkProcess
from benchmarks.spread import spread_of
from kprod import KafkaProducer
from kprod.cli.figures import CostMeter

THREADS = [1, 2, 4]
SHARED, EACH = "one producer", "one each"
RECORDS, ROUNDS = 1_000_000, 5
"""Of all threads together, in one turn."""
PARTITIONS = 6
VALUE = b"v" * 100
LEFT_SECONDS = 60.0
MEGA = 1e6


def run(way: str, threads: int, records: int, bootstrap_servers: str) -> dict[str, float]:
    """Send ``records`` from so many threads at once, each with a key of its own; the figures."""
    with ExitStack() as stack:
        producers = [
            stack.enter_context(KafkaProducer(bootstrap_servers=bootstrap_servers))
            for _ in range(1 if way == SHARED else threads)
        ]
        for producer in producers:
            producer.send("threads", VALUE).get(timeout=LEFT_SECONDS)
        begin = threading.Barrier(threads + 1)
        senders = [
            threading.Thread(
                target=_send,
                args=(begin, producers[number % len(producers)], number, records // threads),
            )
            for number in range(threads)
        ]
        for sender in senders:
            sender.start()
        begin.wait()
        meter, started = CostMeter(), time.perf_counter()
        for sender in senders:
            sender.join()
        sent_seconds = time.perf_counter() - started
        failed = sum(producer.flush(timeout=LEFT_SECONDS).failed for producer in producers)
        cost = meter.read()
    assert not failed, f"{failed} records failed"
    return {
        "sent_per_second": records / sent_seconds,
        "records_per_second": records / cost.seconds,
        "cpu_us_per_record": cost.cpu_seconds / records * MEGA,
    }


def _send(begin: threading.Barrier, producer: KafkaProducer, number: int, records: int) -> None:
    send, key = producer.send, b"key-%d" % number
    begin.wait()
    for _ in range(records):
        send("threads", VALUE, key)


def has_gil() -> bool:
    """Whether this interpreter has a GIL now, after kprod was loaded."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _taken(options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    cases = [(way, threads) for threads in options.threads for way in (SHARED, EACH)]
    taken: dict[str, list[dict[str, float]]] = {f"{way}, {n} threads": [] for way, n in cases}
    with SinkProcess(PARTITIONS) as sink:
        for number in range(options.rounds):
            for way, threads in cases if number % 2 == 0 else cases[::-1]:
                turn = [way, threads, options.records, sink.bootstrap_servers]
                command = [sys.executable, "-m", "benchmarks.thread_scaling", "--turn"]
                found = figures_of([*command, json.dumps(turn)])
                taken[f"{way}, {threads} threads"].append(found)
    return taken


def _figures(taken: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """The spread of each figure by case."""
    return {
        case: {name: spread_of([one[name] for one in turns]).as_json() for name in turns[0]}
        for case, turns in taken.items()
    }


def main() -> int:
    """Run what the command line asks for, and store it; the exit code."""
    options = _parser().parse_args()
    if options.turn is not None:
        print(json.dumps(run(*json.loads(options.turn))))
        return 0
    origin = provenance()
    figures = _figures(_taken(options))
    for case, found in figures.items():
        sent, cpu = found["sent_per_second"], found["cpu_us_per_record"]
        print(f"{case}: {sent['median']:,.0f} records/s, {cpu['median']:.2f} us of CPU each")
    name = "thread-scaling" if has_gil() else "thread-scaling-free"
    whole = options.rounds >= ROUNDS and options.records >= RECORDS and options.threads == THREADS
    stored = write_result(
        name if whole else f"{name}-quick",
        question="How does send scale with threads, on one producer and on one for each?",
        command=command_line("benchmarks.thread_scaling"),
        origin=origin,
        settings={
            "gil": has_gil(), "threads": options.threads, "records": options.records,
            "rounds": options.rounds, "value_bytes": len(VALUE), "partitions": PARTITIONS,
        },
        figures=figures,
    )  # fmt: skip
    print(f"Stored in {stored.relative_to(ROOT)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thread_scaling")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--records", type=int, default=RECORDS, help="of each turn")
    parser.add_argument("--threads", type=int, nargs="+", default=THREADS)
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
