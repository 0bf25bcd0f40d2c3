"""Rows of a table, each in a child process, so that a hang or crash affects only one row."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

WAITS, CRASHES = "waits", "crashes"
LIMIT = 30.0
"""Seconds for a row that should end."""
HANGS = 2.0
"""Seconds after which a row counts as hanging, if it should hang."""
AT_ONCE = 6
"""How many rows run in parallel: they mostly wait."""


class Row(NamedTuple):
    """A call in a situation: the result of the original, and kprod's if it differs.

    ``run`` gets the module and the address of a broker, and returns a description, or a list.
    """

    name: str
    run: Callable[[Any, str], Any]
    theirs: Any
    ours: Any = None
    why: str = ""

    def expected(self, ours: bool) -> Any:
        return self.ours if ours and self.ours is not None else self.theirs


def outcome(call: Callable[..., Any], *given: Any) -> str:
    """What a call returns, or the kind of its exception, with the code of a KafkaError."""
    try:
        found = call(*given)
    except Exception as error:
        (cause,) = error.args[:1] or ("",)
        if not hasattr(cause, "txn_requires_abort"):
            return type(error).__name__
        fatal = " fatal" if cause.fatal() else ""
        return f"{type(error).__name__} {cause.name()}{fatal}"
    return repr(found) if found is None or isinstance(found, int) else type(found).__name__


def main(rows: list[Row]) -> None:
    """Run every row with the module and the broker that ``sys.argv`` names, and print JSON.

    The caller must have one thread and no client: it forks.
    """
    name, servers = sys.argv[1:]
    module, ours = importlib.import_module(name), name.startswith("kprod")
    found: dict[str, Any] = {}
    for first in range(0, len(rows), AT_ONCE):
        begun = [(row, *_begin(row, module, servers)) for row in rows[first : first + AT_ONCE]]
        now = time.monotonic()
        for row, child, reading in begun:
            limit = HANGS if row.expected(ours) == WAITS else LIMIT
            found[row.name] = _result(child, reading, now + limit)
    json.dump(found, sys.stdout)


def _begin(row: Row, module: Any, servers: str) -> tuple[int, int]:
    """Fork a child that runs a row; its pid, and a pipe with the result."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(row.run(module, servers)).encode())
        finally:
            os._exit(0)  # without the interpreter's shutdown, which might hang
    os.close(writing)
    return child, reading


def _result(child: int, reading: int, deadline: float) -> Any:
    text = b""
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(reading, 65_536)
        if not piece:
            break
        text += piece
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if text:
        return json.loads(text)
    return WAITS if os.waitstatus_to_exitcode(status) == -signal.SIGKILL else CRASHES
