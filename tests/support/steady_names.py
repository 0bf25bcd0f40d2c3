"""Test ids that are the same in every process, as pytest-xdist requires."""

from __future__ import annotations

import re

ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def steady_repr(value: object) -> str:
    return ADDRESS.sub("", repr(value))
