"""Works around a crash of Python after failed allocations."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType

FORGET_A_REFERENCE = {(3, 12), (3, 13)}
"""At least 3.12.1, 3.13.0 and 3.13.5; fixed in 3.14."""
ENOUGH = 2500
"""More than the failures of one process."""

_kept: list[tuple[CodeType, ...]] = []


def keep_code() -> None:
    """Call it before allocations fail.

    Without memory for a function object, Python 3.12 and 3.13 release a reference to its code once
    too often (gh-122752); the process crashes when that was the last one.
    """
    if sys.version_info[:2] in FORGET_A_REFERENCE:
        _kept.extend((code,) * ENOUGH for code in {id(code): code for code in _inner()}.values())


def _inner() -> Iterator[CodeType]:
    gc.unfreeze()  # frozen objects are not listed
    outer = [each.__code__ for each in gc.get_objects() if isinstance(each, FunctionType)]
    while outer:
        inner = [each for each in outer.pop().co_consts if isinstance(each, CodeType)]
        yield from inner
        outer += inner
