"""The phases of a cycle: each uses its own topic, checked by an independent consumer."""

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
"""Between two faults while records are sent."""
NODES = (1, 2, 3)


class Phases:
    """Runs phases. AssertionError: a record was lost, duplicated or out of order.

    ``records`` counts them; ``milliseconds`` are those of the last ``steady`` phase.
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

    def run(self, kind: str) -> None:
        topic = f"{kind}-{self._number}"
        self._number += 1
        self._admin.create(topic, PARTITIONS)
        self.kinds[kind](topic)
        self._admin.delete(topic)

    def _steady(self, topic: str) -> None:
        self._begin(topic)
        self.milliseconds = self._check(topic)["milliseconds"]

    def _brief(self, topic: str) -> None:
        self._load.begin("send_briefly", topic=topic, partitions=PARTITIONS, **self._pace)
        self._check(topic)

    def _leaders(self, topic: str) -> None:
        self._begin(topic)
        for _ in NODES:
            time.sleep(PAUSE_SECONDS)
            self._brokers.ask("move_leaders", topic=topic, partitions=PARTITIONS)
        self._check(topic)

    def _restarts(self, topic: str) -> None:
        self._begin(topic)
        for node in NODES:
            time.sleep(PAUSE_SECONDS)
            self._brokers.ask("restart", node=node)
        self._check(topic)

    def _crash(self, topic: str) -> None:
        self._begin(topic)
        time.sleep(PAUSE_SECONDS)
        self._brokers.ask("crash")
        self._check(topic)

    def _logins(self, topic: str) -> None:
        self._begin(topic, "guarded")
        self._check(topic)

    def _certificates(self, topic: str) -> None:
        self._begin(topic, "guarded")
        time.sleep(PAUSE_SECONDS)
        self._brokers.ask("renew_certificates")
        self._check(topic)

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

    def _check(self, topic: str) -> dict[str, Any]:
        result: dict[str, Any] = self._load.answer()
        check_order(read_back(self._servers, topic, PARTITIONS), result["sent"], PARTITIONS)
        self.records += result["sent"]
        return result
