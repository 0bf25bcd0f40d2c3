"""A kernel: one small operation, done many times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Kernel:
    """``prepare`` makes ready for one round and returns the round, which is what is measured.

    A round does ``operations`` operations, in a Python loop whose own cost is part of it; the
    kernel "empty loop" is nothing else. Kernels are measured in the order they are listed in.
    """

    name: str
    question: str
    operations: int
    prepare: Callable[[], Work]
