"""Does a rate last? Three clients with default options, for minutes each, on one Apache Kafka.

    python -m benchmarks.endurance [--seconds N] [--rounds N] [--sizes N [N ...]] [--reversed]

kprod, confluent-kafka and the Java client send keyed records to one broker, each in a process of
its own and to a topic of its own, which keeps the newest segments only. Every second round goes the
other way round, and so does the first one of every second size; with ``--reversed`` it is the
others. Needs Java and Maven. Stores ``results/endurance.json``, or ``endurance-reversed.json``,
when a turn took five minutes; a shorter run's name ends with ``-quick``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.endurance.load import KEYS, PARTS, Load
from benchmarks.endurance.turn import SIDES
from benchmarks.measured_kafka import BROKER_JVM, MeasuredKafka
from benchmarks.measured_process import ROOT, figures_of
from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.spread import significant, spread_of
from tests.support.apache_kafka.jars import NEWEST
from tests.support.committed_records import log_ends
from tests.support.topic_admin import TopicAdmin

QUESTION = "Does the rate last for minutes, and at what cost in CPU time, requests and memory?"
PARTITIONS = 6
KPROD, RIVAL, JAVA = "kprod send", "confluent produce + callback", "java send + callback"
JAVA_SOURCE = Path(__file__).with_name("Endurance.java")
KEPT = {"segment_bytes": 128 << 20, "retention_bytes": 256 << 20, "file_delete_delay_ms": 1000}
"""Of each partition; five minutes of all records would fill a disk."""
BROKER = {"log.retention.check.interval.ms": 2000}
SECONDS, WARM_UP = 300.0, 10.0
LEFT = 120.0
"""Seconds that a turn may take beyond those it sends for."""
MEGA, GIGA = 1e6, 1e9
WANTED = {
    "records_per_second": (">=", 1.0),
    "cpu_us_per_record": ("<=", 0.4),
    "requests_per_gigabyte": ("<=", 0.7),
}
"""kprod's figure by confluent-kafka's, in the same round."""
Figures = dict[str, float]


class Turns:
    """Takes turns on one broker, each on a topic of its own."""

    def __init__(self, kafka: MeasuredKafka) -> None:
        self._kafka = kafka
        self._address = kafka.bootstrap_servers
        self._admin = TopicAdmin(self._address)

    def take(self, side: str, load: Load, topic: str) -> Figures:
        """The figures of one turn; AssertionError if fewer records arrived than were sent."""
        self._admin.create(topic, PARTITIONS, **KEPT)
        longest = load.warm_up + load.seconds + LEFT
        found = figures_of(self._command(side, load, topic), seconds=longest)
        arrived = sum(log_ends(self._address, topic, PARTITIONS))
        assert arrived >= found["sent"], f"{side}: {arrived} records for {found['sent']}"
        self._admin.delete(topic)
        return figures(found["parts"], load.size) | {"doubled": arrived - found["sent"]}

    def _command(self, side: str, load: Load, topic: str) -> list[str]:
        if side == JAVA:
            return self._kafka.java(topic, load.size, load.warm_up, load.seconds, PARTS, KEYS)
        turn = [sys.executable, "-m", "benchmarks.endurance.turn", side]
        return [*turn, json.dumps(load.as_json()), self._address, topic]


def figures(parts: list[Mapping[str, float]], size: int) -> Figures:
    """What is told of a turn. ``last_by_first`` is the rate of the last part by the first's."""

    def total(name: str) -> float:
        return sum(part[name] for part in parts)

    records, rates = total("records"), [part["records"] / part["seconds"] for part in parts]
    first, last = parts[0], parts[-1]
    return {
        "records_per_second": records / total("seconds"),
        "megabytes_per_second": records * size / total("seconds") / MEGA,
        "cpu_us_per_record": total("cpu_seconds") / records * MEGA,
        "requests_per_gigabyte": total("requests") / (records * size / GIGA),
        "last_by_first": rates[-1] / rates[0],
        "rss_mb_after_first_part": first["rss_bytes"] / MEGA,
        "rss_mb_at_the_end": last["rss_bytes"] / MEGA,
    }


def main() -> int:
    """Run what the command line asks for, and store it; the exit code."""
    options = _parser().parse_args()
    warm_up = min(WARM_UP, options.seconds / 4)
    loads = {
        f"{size} B": Load(size=size, seconds=options.seconds, warm_up=warm_up)
        for size in options.sizes
    }
    origin = provenance()
    with MeasuredKafka(JAVA_SOURCE, BROKER) as kafka:
        turns = Turns(kafka)
        taken = {
            name: _taken(turns, name, load, options.rounds, first)
            for first, (name, load) in enumerate(loads.items(), start=options.reversed)
        }
    name = "endurance-reversed" if options.reversed else "endurance"
    file = write_result(
        name if options.seconds >= SECONDS else f"{name}-quick",
        question=QUESTION,
        command=command_line("benchmarks.endurance"),
        origin=origin,
        settings=_settings(loads, options.rounds),
        figures={"ratios": _ratios(taken), "rounds": taken},
    )
    print(f"Stored in {file.relative_to(ROOT)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.endurance")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that each turn sends for")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000], metavar="BYTES")
    parser.add_argument(
        "--reversed", action="store_true", help="begin each size with the other client"
    )
    return parser


def _taken(
    turns: Turns, name: str, load: Load, rounds: int, first: int
) -> dict[str, list[Figures]]:
    sides = [*SIDES, JAVA]
    taken: dict[str, list[Figures]] = {side: [] for side in sides}
    for number in range(rounds):
        for place, side in enumerate(sides if (first + number) % 2 == 0 else sides[::-1]):
            found = turns.take(side, load, f"size-{load.size}-{number}-{place}")
            rounded = {what: significant(value) for what, value in found.items()}
            taken[side].append(rounded)
            told = ", ".join(f"{what} {value}" for what, value in rounded.items())
            print(f"{name}, round {number + 1}, {side}: {told}", flush=True)
    return taken


def _ratios(taken: Mapping[str, Mapping[str, list[Figures]]]) -> dict[str, Any]:
    """kprod's figures by confluent-kafka's, round by round, and whether the median is as wanted."""
    found: dict[str, Any] = {}
    for name, sides in taken.items():
        for figure, (bound, limit) in WANTED.items():
            pairs = zip(sides[KPROD], sides[RIVAL], strict=True)
            ratio = spread_of([ours[figure] / theirs[figure] for ours, theirs in pairs])
            reached = ratio.median >= limit if bound == ">=" else ratio.median <= limit
            verdict = "reached" if reached else "missed"
            print(f"{name}, {figure}: {significant(ratio.median)} ({bound} {limit}: {verdict})")
            found[f"{name}, {figure}"] = ratio.as_json()
    return found


def _settings(loads: Mapping[str, Load], rounds: int) -> dict[str, Any]:
    return {
        "broker": f"Apache Kafka {NEWEST}, one node",
        "broker_jvm": list(BROKER_JVM),
        "java_client": NEWEST,
        "options": "the defaults of each client",
        "partitions": PARTITIONS,
        "keys": KEYS,
        "rounds": rounds,
        "loads": {name: load.as_json() for name, load in loads.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
