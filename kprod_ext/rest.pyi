from typing import final

@final
class Rest:
    """One thread rests; any thread rings, sets a time to look by, or says that it is at work.

    Raises OSError when the system has no timer left.
    """

    def __init__(self) -> None: ...
    def rest(self, patience: float) -> bool:
        """Rest until ``ring``: True. False when the time set has come, or when nobody has worked
        for ``patience`` seconds. The interpreter is left alone meanwhile.
        """

    def ring(self) -> None:
        """End the present rest, or the next one."""

    def look_within(self, seconds: float) -> None:
        """End the present rest, or the next one, in ``seconds``, or a millisecond later.

        Not in the next half of one: who asks for it may be about to do the work. After many who
        were, it may be up to 9 ms later, once.
        """

    def work_begins(self) -> None:
        """Somebody looks at everything now, and works: nothing is due until that ends."""

    def work_ends(self) -> None:
        """The work has ended."""

    def close(self) -> None:
        """Give back what the system lent. Nobody rests here any more. Idempotent."""

    def abandon(self) -> None:
        """As ``close``, in a forked child: a thread of the parent may have been at any place."""
