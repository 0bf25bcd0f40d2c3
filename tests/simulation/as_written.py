"""Processes that load the producer's modules as they are written, though they are compiled.

A bug can be planted only in classes that may be changed from outside; those of a compiled module
may not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kprod.compiled_modules import SWITCH


@contextmanager
def environment() -> Iterator[None]:
    """Processes that are started meanwhile load the source."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before
