"""Bugs of both protocols in real tasks."""

from __future__ import annotations

from contextlib import ExitStack

VARIABLE = "KPROD_PLANTED"
"""The environment variable of workers."""
_planted = ExitStack()  # for as long as the process lives


def plant(wanted: str | None) -> None:
    """Plant the bug of this delivery and name, if any."""
    if wanted is None:
        return
    from tests.spark.exactly_once.bugs import ATOMIC, ONCE

    delivery, name = wanted.split()
    (bug,) = (bug for bug in (ATOMIC if delivery == "atomic" else ONCE) if bug.name == name)
    _planted.enter_context(bug.planted())
