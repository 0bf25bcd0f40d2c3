"""Exactly-once delivery from Spark while processes are killed: each row is stored once.

Kills of workers, executors, drivers and brokers; coordinators that move; tasks that are frozen
beyond their transaction timeout or overtaken by copies; lost shuffles; restarts with another number
of shards; two calls with one name. ``KPROD_CAMPAIGN=long``, as ``make campaign`` runs it, with
``KPROD_SPARK_KILLS_ONCE`` kills (500), chosen by ``KPROD_SPARK_SEED``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from kprod.broker.protocol.api_key import ApiKey
from tests.spark.driver_process import OF_CAMPAIGNS
from tests.spark.exactly_once_kills.campaign import campaign
from tests.spark.exactly_once_kills.checks import Violation
from tests.spark.exactly_once_kills.jobs import SURFACES
from tests.spark.exactly_once_kills.kinds import COPYING, DECKS, draw
from tests.support.apache_kafka.jars import NEWEST, OLDER

pytestmark = OF_CAMPAIGNS

KILLS = int(os.environ.get("KPROD_SPARK_KILLS_ONCE", "500"))
SEED = int(os.environ.get("KPROD_SPARK_SEED", "20"))
SHARES = {
    ("local", "embedded"): 0.2,
    ("local", NEWEST): 0.2,
    ("local", OLDER): 0.2,
    ("local-cluster", "embedded"): 0.05,
    ("local-cluster", NEWEST): 0.05,
    ("local-cluster", OLDER): 0.05,
    ("standalone", "embedded"): 0.05,
    ("standalone", NEWEST): 0.1,
    ("standalone", OLDER): 0.05,
    ("connect", NEWEST): 0.05,
}
"""Of the kills, by session and broker."""
DELIVERIES = ("exactly_once", "atomic")


@pytest.mark.parametrize(("session", "broker"), SHARES)
def test_kills_neither_lose_nor_duplicate_rows(
    session: str, broker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if session == "connect":
        pytest.importorskip("grpc", reason="Spark Connect needs grpcio: make campaign has it")
    deck = [kind for kind, cards in DECKS[session].items() for _ in range(cards)]
    wanted = max(1, round(KILLS * SHARES[session, broker]))
    with campaign(session, broker, tmp_path) as kills:
        for seed in count(SEED):
            delivery = DELIVERIES[seed // len(deck) % 2]
            kills.play(draw(seed, deck[seed % len(deck)], delivery, SURFACES, broker))
            if kills.kills.total() >= wanted:
                break
    with capsys.disabled():
        print(f"\n{session}, {broker}: {dict(kills.kills)}")


MOST_TRIES = 12


@pytest.mark.parametrize(
    ("delivery", "bug", "kind", "api"),
    [
        ("exactly_once", "marker_outside", "worker", ApiKey.END_TXN),
        ("exactly_once", "marker_before_rows", "worker", ApiKey.PRODUCE),
        ("exactly_once", "no_marker", "worker", ApiKey.END_TXN),
        ("exactly_once", "count_ignored", "shards", ApiKey.END_TXN),
        ("exactly_once", "job_by_run", "driver", ApiKey.END_TXN),
        ("exactly_once", "id_by_attempt", "overtaken", ApiKey.TXN_OFFSET_COMMIT),
        ("exactly_once", "read_before_taking_over", "crossing", ApiKey.TXN_OFFSET_COMMIT),
        ("atomic", "decision_after_ends", "driver", ApiKey.END_TXN),
        ("atomic", "no_decision", "driver", ApiKey.END_TXN),
        ("atomic", "committed_by_tasks", "driver", ApiKey.END_TXN),
        ("atomic", "lost_passes_for_done", "freeze", ApiKey.END_TXN),
        ("atomic", "everything_open_is_committed", "worker", ApiKey.TXN_OFFSET_COMMIT),
        ("atomic", "marker_outside", "driver", ApiKey.END_TXN),
        ("atomic", "rewritten_without_looking", "driver", ApiKey.END_TXN),
    ],
)
def test_the_campaign_finds_bugs_of_the_protocols(
    delivery: str, bug: str, kind: str, api: ApiKey, tmp_path: Path
) -> None:
    session = "standalone" if kind in COPYING else "local"
    drawn = [draw(seed, kind, delivery, ("write",)) for seed in range(SEED, SEED + MOST_TRIES)]
    cases = [
        replace(case, moments=tuple(replace(one, api=api, dropped=False) for one in case.moments))
        for case in drawn
    ]
    planted = f"{delivery} {bug}"
    with campaign(session, "embedded", tmp_path, planted) as kills, pytest.raises(Violation):
        list(map(kills.play, cases))
