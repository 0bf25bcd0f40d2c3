"""Keeps Python itself from a crash where allocations fail"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType

FORGET_A_REFERENCE = {(3, 12), (3, 13)}
"""Of their releases at least 3.12.1, 3.13.0 and 3.13.5; 3.14 is mended."""
ENOUGH = 2500
"""More than a process has failures."""

_kept: list[tuple[CodeType, ...]] = []


def keep_code() -> None:
    """Call it in a process in which allocations are to fail, before they do.

    Without memory for a function, Python 3.12 and 3.13 give back a reference to its code that they
    did not take (gh-122752). Where that was the last one, making the next such function crashes.
    """
    if sys.version_info[:2] in FORGET_A_REFERENCE:
        _kept.extend((code,) * ENOUGH for code in {id(code): code for code in _inner()}.values())


def _inner() -> Iterator[CodeType]:
    """The code of all functions, lambdas and generators that functions make."""
    gc.unfreeze()  # the collector does not list what is frozen
    outer = [each.__code__ for each in gc.get_objects() if isinstance(each, FunctionType)]
    while outer:
        inner = [each for each in outer.pop().co_consts if isinstance(each, CodeType)]
        yield from inner
        outer += inner
