from typing_extensions import disjoint_base

@disjoint_base
class Guarded:
    """An object with a lock of its own, within itself: a base class.

    A ``threading.Lock`` is an object that the garbage collector walks over, and a semaphore
    somewhere else in memory; where one is made for each of many objects, both cost more than
    locking does. This one is for what is held for a few steps: a waiter lets go of the GIL,
    and tries again in longer and longer intervals.
    """

    def take_lock(self) -> None:
        """Wait until no other thread has it. A thread that has it already waits for ever."""

    def release_lock(self) -> None:
        """Let the next thread have it."""
