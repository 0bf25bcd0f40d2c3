"""How many transactions a second, and how long does a commit take? Three clients, in turns.

    python -m benchmarks.transactions [--quick] [--rounds N] [--only NAME ...]

kprod, confluent-kafka and the Java client send the same transactions to one Apache Kafka broker,
all with their default options. Needs Java and Maven. Stores ``results/transactions.json``; a quick
or partial run goes to ``transactions-quick.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measured_kafka import BROKER_JVM, MeasuredKafka
from benchmarks.measured_process import ROOT, figures_of
from benchmarks.provenance import command_line, provenance
from benchmarks.result_file import write_result
from benchmarks.spread import Spread, significant, spread_of
from benchmarks.transactions.load import Load
from benchmarks.transactions.turn import SIDES
from kprod.cli.figures import percentiles
from tests.support.apache_kafka.jars import NEWEST
from tests.support.committed_records import committed
from tests.support.topic_admin import TopicAdmin

QUESTION = "How many transactions and records a second, and how long does a commit take?"
PARTITIONS = 6
JAVA = "java send"
OURS = ("kprod send", "kprod send_many")
RIVALS = ("confluent produce", JAVA)
JAVA_SOURCE = Path(__file__).with_name("Transactions.java")

LOADS = {
    "small": Load(transactions=400, records=100, warm_up=200),
    "large": Load(transactions=40, records=10_000, warm_up=20),
}
QUICK = 8
"""A quick run has so many times fewer transactions."""
US = 1e6
Figures = dict[str, float]


class Goal(NamedTuple):
    """A ratio to the better of the rivals, within a round."""

    load: str
    figure: str
    at_least: bool

    @property
    def wanted(self) -> str:
        return ">= 1.0" if self.at_least else "<= 1.0"

    def ratio(self, ours: float, rivals: list[float]) -> float:
        """Ours by the better one of theirs."""
        return ours / (max(rivals) if self.at_least else min(rivals))

    def reached(self, ratio: float) -> bool:
        return ratio >= 1.0 if self.at_least else ratio <= 1.0


GOALS = (
    Goal("small", "transactions_per_second", at_least=True),
    Goal("small", "commit_p50_ms", at_least=False),
    Goal("large", "records_per_second", at_least=True),
    Goal("large", "commit_p50_ms", at_least=False),
)


class Turns:
    """Takes turns on one broker: each on a topic, and with a transactional id, of its own."""

    def __init__(self, kafka: MeasuredKafka) -> None:
        self._kafka = kafka
        self._address = kafka.bootstrap_servers
        self._admin = TopicAdmin(self._address)

    def take(self, side: str, load: Load, topic: str) -> Figures:
        """The figures of one turn; AssertionError if not every record was committed once."""
        self._admin.create(topic, PARTITIONS)
        found = figures_of(self._command(side, load, topic))
        arrived = len(committed(self._address, topic, PARTITIONS))
        assert arrived == load.all_records, f"{side}: {arrived} records for {load.all_records}"
        self._admin.delete(topic)
        return _figures(found, load)

    def _command(self, side: str, load: Load, topic: str) -> list[str]:
        if side == JAVA:
            return self._kafka.java(topic, load.warm_up, load.transactions, load.records, load.size)
        turn = [sys.executable, "-m", "benchmarks.transactions.turn", side]
        return [*turn, json.dumps(load.as_json()), self._address, topic]


def _figures(found: Mapping[str, Any], load: Load) -> Figures:
    seconds, records = found["seconds"], load.transactions * load.records
    told = {
        "transactions_per_second": load.transactions / seconds,
        "records_per_second": records / seconds,
        "cpu_us_per_record": found["cpu_seconds"] / records * US,
    }
    commits = percentiles(found["commits"])
    return told | {f"commit_{name}_ms": milliseconds for name, milliseconds in commits.items()}


def main() -> int:
    """Run what the command line asks for, and store it; the exit code."""
    options = _parser().parse_args()
    partial = options.quick or options.only is not None
    loads = {name: LOADS[name] for name in options.only or LOADS}
    if options.quick:
        loads = {name: _fewer(load) for name, load in loads.items()}
    origin = provenance()
    with MeasuredKafka(JAVA_SOURCE) as kafka:
        turns = Turns(kafka)
        taken = {name: _taken(turns, name, load, options.rounds) for name, load in loads.items()}
    ratios = _ratios(taken)
    file = write_result(
        "transactions-quick" if partial else "transactions",
        question=QUESTION,
        command=command_line("benchmarks.transactions"),
        origin=origin,
        settings=_settings(loads, options.rounds),
        figures={"loads": _spreads(taken), "ratios": ratios, "rounds": _rounded(taken)},
    )
    print(f"Stored in {file.relative_to(ROOT)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="few transactions, to see it work")
    parser.add_argument("--only", nargs="+", choices=LOADS, metavar="NAME")
    return parser


def _fewer(load: Load) -> Load:
    return replace(load, transactions=load.transactions // QUICK, warm_up=load.warm_up // QUICK)


def _taken(turns: Turns, name: str, load: Load, rounds: int) -> dict[str, list[Figures]]:
    """The figures of each side's turns. Every second round goes the other way round.

    The round before the first warms the broker up, and does not count.
    """
    sides = [*SIDES, JAVA]
    taken: dict[str, list[Figures]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for place, side in enumerate(sides if number % 2 == 0 else sides[::-1]):
            figures = turns.take(side, load, f"{name}-{number}-{place}")
            if number:
                taken[side].append(figures)
            told = ", ".join(f"{what} {significant(value)}" for what, value in figures.items())
            print(f"{name}, round {number}, {side}: {told}", flush=True)
    return taken


def _ratios(taken: Mapping[str, Mapping[str, list[Figures]]]) -> dict[str, Any]:
    """Each goal's ratio within each round, and whether the median reaches it."""
    found: dict[str, Any] = {}
    for goal in (goal for goal in GOALS if goal.load in taken):
        sides = taken[goal.load]
        for side in OURS:
            theirs = zip(*(sides[rival] for rival in RIVALS), strict=True)
            ratios: Spread = spread_of(
                [
                    goal.ratio(ours[goal.figure], [rival[goal.figure] for rival in rivals])
                    for ours, rivals in zip(sides[side], theirs, strict=True)
                ]
            )
            verdict = "reached" if goal.reached(ratios.median) else "missed"
            print(
                f"{goal.load} {goal.figure}, {side} by the better rival:"
                f" {significant(ratios.median)} (wanted {goal.wanted}: {verdict})"
            )
            found[f"{goal.load} {goal.figure}, {side}"] = ratios.as_json()
    return found


def _spreads(taken: Mapping[str, Mapping[str, list[Figures]]]) -> dict[str, Any]:
    return {
        name: {
            side: {figure: spread_of([one[figure] for one in ones]).as_json() for figure in ones[0]}
            for side, ones in sides.items()
        }
        for name, sides in taken.items()
    }


def _rounded(taken: Mapping[str, Mapping[str, list[Figures]]]) -> dict[str, Any]:
    return {
        name: {
            side: [{figure: significant(value) for figure, value in one.items()} for one in ones]
            for side, ones in sides.items()
        }
        for name, sides in taken.items()
    }


def _settings(loads: Mapping[str, Load], rounds: int) -> dict[str, Any]:
    return {
        "broker": f"Apache Kafka {NEWEST}, one node, transaction.version 2",
        "broker_jvm": list(BROKER_JVM),
        "java_client": NEWEST,
        "options": "the defaults of each client: linger is 5 ms for all of them",
        "partitions": PARTITIONS,
        "rounds": rounds,
        "loads": {name: load.as_json() for name, load in loads.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
