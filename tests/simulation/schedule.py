"""Everything that determines one run."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tests.simulation.actions import Action
from tests.simulation.setup import Setup


@dataclass(frozen=True, slots=True)
class Schedule:
    """``gentle``: nothing happens in it that may end a record in an error."""

    seed: int
    setup: Setup
    actions: tuple[Action, ...]
    gentle: bool = False

    @property
    def calm_at(self) -> float:
        """When faults are over; a moment after the last action."""
        return max((action.at for action in self.actions), default=0.0) + 0.5

    def as_test(self, name: str) -> str:
        """A pytest that runs this schedule."""
        default = Setup()
        changed = [
            f"{field.name}={getattr(self.setup, field.name)!r}"
            for field in fields(Setup)
            if getattr(self.setup, field.name) != getattr(default, field.name)
        ]
        lines = [
            f"def test_{name}() -> None:",
            "    schedule = Schedule(",
            f"        seed={self.seed},",
            f"        setup=Setup({', '.join(changed)}),",
            "        actions=(",
            *(f"            {action!r}," for action in self.actions),
            "        ),",
            f"        gentle={self.gentle},",
            "    )",
            "    assert not run(schedule).violations",
        ]
        return "\n".join(lines)
