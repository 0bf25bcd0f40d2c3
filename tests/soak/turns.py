"""What happens in turns: each to a topic of its own, judged by a consumer that is not ours."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.soak.command_process import CommandProcess
from tests.support.committed_records import committed, read_back
from tests.support.numbered_records import check_order
from tests.support.topic_admin import TopicAdmin

PARTITIONS = 6
TRANSACTIONS = 30
ROWS = 2_000
PAUSE_SECONDS = 1.0
"""Between two things that happen to the brokers while records flow."""
NODES = (1, 2, 3)


class Turns:
    """Runs one turn after another. AssertionError: a record was lost, doubled or out of order.

    ``records`` counts them; ``milliseconds`` are those of the last steady turn.
    """

    def __init__(
        self,
        load: CommandProcess,
        brokers: CommandProcess,
        spark: CommandProcess | None,
        servers: str,
        *,
        seconds: float,
        rate: float,
    ) -> None:
        self.records = 0
        self.milliseconds: list[float] = []
        self._load, self._brokers, self._spark = load, brokers, spark
        self._servers = servers
        self._admin = TopicAdmin(servers)
        self._pace = {"seconds": seconds, "rate": rate}
        self._number = 0

    @property
    def kinds(self) -> dict[str, Callable[[str], None]]:
        """By name, in the order in which they are taken."""
        found: dict[str, Callable[[str], None]] = {
            "steady": self._steady,
            "brief": self._brief,
            "leaders": self._leaders,
            "restarts": self._restarts,
            "crash": self._crash,
            "logins": self._logins,
            "certificates": self._certificates,
            "transactions": self._transactions,
        }
        return found if self._spark is None else {**found, "micro-batches": self._micro_batches}

    def take(self, kind: str) -> None:
        """Make a topic, do what the turn is for, judge what the topic has, and remove it."""
        topic = f"{kind}-{self._number}"
        self._number += 1
        self._admin.create(topic, PARTITIONS)
        self.kinds[kind](topic)
        self._admin.delete(topic)

    def _steady(self, topic: str) -> None:
        self._begin(topic)
        self.milliseconds = self._judged(topic)["milliseconds"]

    def _brief(self, topic: str) -> None:
        self._load.begin("send_briefly", topic=topic, partitions=PARTITIONS, **self._pace)
        self._judged(topic)

    def _leaders(self, topic: str) -> None:
        self._begin(topic)
        for _ in NODES:
            time.sleep(PAUSE_SECONDS)
            self._brokers.ask("move_leaders", topic=topic, partitions=PARTITIONS)
        self._judged(topic)

    def _restarts(self, topic: str) -> None:
        self._begin(topic)
        for node in NODES:
            time.sleep(PAUSE_SECONDS)
            self._brokers.ask("restart", node=node)
        self._judged(topic)

    def _crash(self, topic: str) -> None:
        self._begin(topic)
        time.sleep(PAUSE_SECONDS)
        self._brokers.ask("crash")
        self._judged(topic)

    def _logins(self, topic: str) -> None:
        self._begin(topic, "guarded")
        self._judged(topic)

    def _certificates(self, topic: str) -> None:
        self._begin(topic, "guarded")
        time.sleep(PAUSE_SECONDS)
        self._brokers.ask("renew_certificates")
        self._judged(topic)

    def _transactions(self, topic: str) -> None:
        wanted = self._load.ask(
            "transact", topic=topic, partitions=PARTITIONS, transactions=TRANSACTIONS
        )["committed"]
        found = [int(value) for value in committed(self._servers, topic, PARTITIONS)]
        assert found == sorted(wanted, key=lambda number: number % PARTITIONS), topic
        self.records += len(found)

    def _micro_batches(self, topic: str) -> None:
        assert self._spark is not None
        self._spark.ask("write", topic=topic, rows=ROWS)
        found = Counter(record.value for record in read_back(self._servers, topic, PARTITIONS))
        assert found == Counter(b"%d" % row for row in range(ROWS)), topic
        self.records += ROWS

    def _begin(self, topic: str, producer: str = "plain") -> None:
        self._load.begin(
            "send", producer=producer, topic=topic, partitions=PARTITIONS, **self._pace
        )

    def _judged(self, topic: str) -> dict[str, Any]:
        told: dict[str, Any] = self._load.answer()
        check_order(read_back(self._servers, topic, PARTITIONS), told["sent"], PARTITIONS)
        self.records += told["sent"]
        return told
