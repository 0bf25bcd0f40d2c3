"""Counts calls of Python functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType


def entered(act: Callable[[], object], only: CodeType | None = None) -> int:
    """The number of calls by this thread, of ``only`` this function if given."""
    count = 0

    def note(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call" and only in (None, frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count
