"""Which kills show each planted version to be wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kprod.broker.protocol.api_key import ApiKey
from tests.spark.exactly_once_kills.campaign import Campaign
from tests.spark.exactly_once_kills.judge import Violation
from tests.spark.exactly_once_kills.kinds import COPYING, draw

MOST_TRIES = 12


class Hunt(NamedTuple):
    """A wrong version, and the kind of kill that shows what is wrong with it."""

    delivery: str
    name: str
    kind: str
    api: ApiKey

    @property
    def session(self) -> str:
        """The kind of session on which it is hunted: copies of tasks need two hosts."""
        return "standalone" if self.kind in COPYING else "local"


HUNTS = (
    Hunt("exactly_once", "marker_outside", "worker", ApiKey.END_TXN),
    Hunt("exactly_once", "marker_before_rows", "worker", ApiKey.PRODUCE),
    Hunt("exactly_once", "no_marker", "worker", ApiKey.END_TXN),
    Hunt("exactly_once", "count_ignored", "shards", ApiKey.END_TXN),
    Hunt("exactly_once", "job_by_run", "driver", ApiKey.END_TXN),
    Hunt("exactly_once", "id_by_attempt", "overtaken", ApiKey.TXN_OFFSET_COMMIT),
    Hunt("exactly_once", "read_before_taking_over", "crossing", ApiKey.TXN_OFFSET_COMMIT),
    Hunt("atomic", "decision_after_ends", "driver", ApiKey.END_TXN),
    Hunt("atomic", "no_decision", "driver", ApiKey.END_TXN),
    Hunt("atomic", "committed_by_tasks", "driver", ApiKey.END_TXN),
    Hunt("atomic", "lost_passes_for_done", "freeze", ApiKey.END_TXN),
    Hunt("atomic", "everything_open_is_committed", "worker", ApiKey.TXN_OFFSET_COMMIT),
    Hunt("atomic", "marker_outside", "driver", ApiKey.END_TXN),
    Hunt("atomic", "rewritten_without_looking", "driver", ApiKey.END_TXN),
)


def hunted(kills: Campaign, hunt: Hunt, seed: int) -> str | None:
    """How the wrong version was caught; None if it was not."""
    for more in range(MOST_TRIES):
        case = draw(seed + more, hunt.kind, hunt.delivery, ("write",))
        moments = tuple(replace(one, api=hunt.api, dropped=False) for one in case.moments)
        try:
            kills.play(replace(case, moments=moments, surface="write"), hunt.name)
        except Violation as caught:
            return f"after {more + 1}: {caught}"
    return None
