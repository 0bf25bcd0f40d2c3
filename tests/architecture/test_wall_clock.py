"""Time is monotonic wherever something is due; the wall clock stamps records, and that is all."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import ROOT, files

NOT_THE_CLIENT = ("kprod/broker", "kprod/cli", "kprod/spark")
WALL = {"time", "time_ns", "ctime", "gmtime", "localtime", "strftime", "now", "utcnow", "today"}
"""Functions of ``time`` and ``datetime`` that look at the wall."""


def test_only_the_clock_looks_at_the_wall() -> None:
    lookers = {name for path in _client() for name in _looks_at_the_wall(path)}
    tokens = "kprod/security/oauthbearer.py: time.time"  # their issuers tell a date, too
    issuer = "kprod/security/client_credentials.py: time.time"  # or for how long they are good
    callback = "kprod/confluent/credentials.py: time.time"
    assert lookers == {"kprod/clock.py: time.time_ns", tokens, issuer, callback}


TELLERS = (
    "kprod/confluent/events.py",
    "kprod/intake/dead_letters.py",  # when the record failed
    "kprod/sender/assembly.py",  # when the producer was made, for telemetry
    "kprod/sender/rounds/telemetry.py",
)
"""What they tell has a date in it that is the business of whoever reads it."""
STAMPERS = {"kprod/aio/record_batch.py", "kprod/testing/recording_producer.py"}
"""Each takes the one clock of its producer, so that timestamps do not go back."""


def test_only_batches_ask_for_the_date() -> None:
    texts = {_name(path): path.read_text() for path in _client()}
    askers = {name: text for name, text in texts.items() if "wall_ms()" in text}
    assert askers.keys() - set(TELLERS) == STAMPERS
    assert all("RecordClock" in askers[name] for name in STAMPERS)
    assert not any("SystemClock" in askers[name] for name in STAMPERS)


def test_only_send_asks_for_the_date_in_compiled_code() -> None:
    compiled = {
        _name(path): path.read_text() for path in files(".pyx", ".pxd", folders=("kprod_ext",))
    }
    clocks = {name for name, text in compiled.items() if "gettime" in text or "<time.h>" in text}
    assert clocks == {"kprod_ext/network.pyx", "kprod_ext/record.pxd"}
    date = [name for name in clocks if "REALTIME" in compiled[name]]
    assert date == ["kprod_ext/record.pxd"]


def _client() -> list[Path]:
    found = files(".py", folders=("kprod",))
    return [path for path in found if not _name(path).startswith(NOT_THE_CLIENT)]


def _looks_at_the_wall(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in WALL:
            of = ast.unparse(node.value)
            if of in {"time", "datetime", "date"}:
                yield f"{_name(path)}: {of}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield f"{_name(path)}: from time"


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))
