"""Bugs planted on purpose: the proof that a simulation would notice the real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.simulation.surroundings import Outcome

MORE_SEEDS = 100
"""How many are tried when the known seed does not notice a planted bug: it takes seconds."""


class Bug(NamedTuple):
    """``swaps``: public names in modules of the producer, and what takes the place of each.

    ``caught_by`` is a seed that notices it.
    """

    name: str
    caught_by: int
    swaps: tuple[tuple[str, Any], ...]

    @contextmanager
    def planted(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for path, broken in self.swaps:
                patch.setattr(path, broken)
            yield

    def check(self, attempt: Callable[[int], Outcome]) -> None:
        """Some seed shows the bug, and shows nothing without it.

        The known seed first, then a few more: what seeds draw may have changed.
        """
        with self.planted():
            seeds = (self.caught_by, *range(MORE_SEEDS))
            found = next((seed for seed in seeds if attempt(seed).violations), None)
        assert found is not None, (
            f"not noticed: {self.name}. Neither seed {self.caught_by}, the known one, nor seeds 0 "
            f"to {MORE_SEEDS - 1} show it. Set MORE_SEEDS to 10,000, and store the seed that does. "
            "If none does, the code has outgrown this mistake: plant it where it can still be "
            "made, or remove it"
        )
        assert not attempt(found).violations
