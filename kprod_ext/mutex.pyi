from typing import final

@final
class Mutex:
    """A lock for ``with`` that is given back without memory.

    Python calls ``threading.Lock.__exit__`` with a tuple. When there is no memory for one, the call
    fails before it begins, and the lock stays held for ever. The methods here need no tuple. Not
    reentrant. A signal does not end the wait for it, so it is for what is held for a few steps.
    """

    def acquire(self) -> None:
        """Wait until no other thread has it. A thread that has it already waits for ever."""

    def release(self) -> None:
        """Let the next thread have it."""

    def __enter__(self) -> None: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...
