from typing import final

@final
class Rest:
    """One thread rests; any thread rings, sets a time to look by, or says that it is at work."""

    def rest(self, patience: float) -> bool:
        """Rest until ``ring``: True. False when the time set has come, or when nobody has worked
        for ``patience`` seconds. The interpreter is left alone meanwhile.
        """

    def ring(self) -> None:
        """End the present rest, or the next one."""

    def look_within(self, seconds: float) -> None:
        """End the present rest, or the next one, in ``seconds``, a millisecond more or less."""

    def work_begins(self) -> None:
        """Somebody looks at everything now, and works: nothing is due until that ends."""

    def work_ends(self) -> None:
        """The work has ended."""
