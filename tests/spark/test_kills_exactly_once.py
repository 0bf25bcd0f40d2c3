"""Everything that Spark writes exactly once with is killed, and each row is there once.

Workers, executors, drivers, brokers; coordinators move, tasks are frozen beyond the time-out of
their transactions or overtaken by copies, shuffles are lost, drivers are started again with
another number of shards, and two calls write other rows under one name. ``KPROD_CAMPAIGN=long``,
as ``make campaign`` runs it; ``KPROD_SPARK_KILLS_ONCE`` kills (500) in all, chosen by
``KPROD_SPARK_SEED``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.spark.driver_process import OF_CAMPAIGNS
from tests.spark.exactly_once_kills.campaign import Campaign, campaign
from tests.spark.exactly_once_kills.hunts import HUNTS, hunted
from tests.spark.exactly_once_kills.jobs import SURFACES
from tests.spark.exactly_once_kills.kinds import DECKS, draw
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
def test_kills_lose_and_double_nothing(
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


@pytest.fixture(scope="module", params=["local", "standalone"])
def planted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Campaign]]:
    folder = tmp_path_factory.mktemp("planted")
    with campaign(request.param, "embedded", folder) as kills:
        yield request.param, kills


def test_wrong_versions_are_caught(planted: tuple[str, Campaign]) -> None:
    session, kills = planted
    hunts = [hunt for hunt in HUNTS if hunt.session == session]
    free = [hunt for hunt in hunts if hunted(kills, hunt, SEED) is None]
    assert hunts
    assert free == []
