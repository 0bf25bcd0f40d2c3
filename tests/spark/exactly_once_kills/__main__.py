"""The campaign: ``python -m tests.spark.exactly_once_kills --session local --broker 4.3.1``."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.spark.exactly_once_kills.account import summary, table
from tests.spark.exactly_once_kills.campaign import Campaign, campaign
from tests.spark.exactly_once_kills.hunts import HUNTS, hunted
from tests.spark.exactly_once_kills.jobs import SURFACES
from tests.spark.exactly_once_kills.judge import Violation
from tests.spark.exactly_once_kills.kinds import DECKS, Case, draw


def main() -> int:
    """Play the kills that the arguments ask for; 1 when one was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.exactly_once_kills")
    parser.add_argument("--session", choices=sorted(DECKS), default="local")
    parser.add_argument("--broker", default="embedded", help="or a version of Apache Kafka")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=1e6, help="no kill is begun after them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*")
    parser.add_argument("--deliveries", nargs="*", default=["exactly_once", "atomic"])
    parser.add_argument("--surfaces", nargs="*", default=list(SURFACES))
    parser.add_argument("--planted", nargs="*", help="hunt these wrong versions instead")
    parser.add_argument("--log", type=Path, help="a line of JSON for each job is added to it")
    parser.add_argument("--table", nargs="*", type=Path, help="of these logs; nothing is killed")
    given = parser.parse_args()
    if given.table is not None:
        print(table(given.table))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended then, too
    with (
        tempfile.TemporaryDirectory() as folder,
        campaign(given.session, given.broker, Path(folder), given.log) as kills,
    ):
        if given.planted is not None:
            return _hunt(kills, given)
        return _play(kills, given)


def _play(kills: Campaign, given: argparse.Namespace) -> int:
    kinds = given.kinds or [k for k, cards in DECKS[given.session].items() for _ in range(cards)]
    seed, wrong, started = given.seed, 0, time.monotonic()
    until = started + 60 * given.minutes
    while kills.kills.total() < given.kills and time.monotonic() < until:
        try:
            kills.play(_drawn(given, seed, kinds))
        except Violation:
            wrong += 1
            traceback.print_exc()
        seed += 1
        print(seed, round(time.monotonic() - started), dict(kills.kills), wrong, flush=True)
    try:
        kills.judge_again()
    except Violation:
        wrong += 1
        traceback.print_exc()
    print(summary(kills.counted), flush=True)
    print("ended early:", dict(kills.ended_early), "jobs judged:", len(kills.jobs), flush=True)
    print("cancelled:", kills.cancelled, "delivery changed:", kills.changed, flush=True)
    return 1 if wrong else 0


def _drawn(given: argparse.Namespace, seed: int, kinds: list[str]) -> Case:
    delivery = given.deliveries[seed // len(kinds) % len(given.deliveries)]
    return draw(seed, kinds[seed % len(kinds)], delivery, tuple(given.surfaces), given.broker)


def _hunt(kills: Campaign, given: argparse.Namespace) -> int:
    free = 0
    for hunt in HUNTS:
        wanted = not given.planted or hunt.name in given.planted
        if wanted and hunt.session == given.session:
            caught = hunted(kills, hunt, given.seed)
            print(hunt.delivery, hunt.name, "CAUGHT" if caught else "FREE", caught, flush=True)
            free += caught is None
    return 1 if free else 0


if __name__ == "__main__":
    sys.exit(main())
