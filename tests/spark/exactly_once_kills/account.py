"""What came of a campaign, by its log: kills by kind, delivery and broker."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

OPEN_SECONDS = 30.0
OPEN = f"open after {OPEN_SECONDS:.0f} s"
HEADS = ("kills", "jobs", "lost", "doubled", "visible early", OPEN, "else wrong")
"""Rows that are lost or doubled; jobs that had a transaction open so long after their end."""


class Line(NamedTuple):
    """What is counted together."""

    session: str
    broker: str
    delivery: str
    kind: str


def table(logs: Iterable[Path]) -> str:
    """All lines of the logs as a table in Markdown, with a sum below."""
    counted: dict[Line, Counter[str]] = {}
    for log in logs:
        for text in log.read_text().splitlines():
            told = json.loads(text)
            case = told["case"]
            line = Line(told["session"], told["broker"], case["delivery"], case["kind"])
            counted.setdefault(line, Counter()).update(counts(told))
    rows = [("session", "broker", "delivery", "kind", *HEADS), ("---",) * (4 + len(HEADS))]
    for line, found in sorted(counted.items()):
        rows.append((*line, *(f"{found[head]:,}" for head in HEADS)))
    total = sum(counted.values(), Counter())
    rows.append(("all", "", "", "", *(f"{total[head]:,}" for head in HEADS)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def summary(counted: Counter[str]) -> str:
    """What a campaign came to, in a line."""
    return ", ".join(f"{head}: {counted[head]:,}" for head in HEADS)


def counts(told: dict[str, Any]) -> Counter[str]:
    """Of one job. A campaign that was ended in the middle of a job has no verdict about it."""
    verdict = told.get("verdict")
    if verdict is None:
        return Counter()
    found = Counter(kills=told["killed"], jobs=1)
    for head in ("lost", "doubled"):
        number = re.search(rf"(\d+) {head}", verdict)
        found[head] += int(number[1]) if number else 0
    found["visible early"] += "is visible" in verdict
    found[OPEN] += told.get("lingered", 0.0) > OPEN_SECONDS or "a transaction is open" in verdict
    found["else wrong"] += verdict != "right" and found.total() == told["killed"] + 1
    return found
