"""Names of test cases that are the same in every process, as workers that share tests need them."""

from __future__ import annotations

import re

ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def steady_repr(value: object) -> str:
    """What ``repr`` says, but not where the object lies."""
    return ADDRESS.sub("", repr(value))
