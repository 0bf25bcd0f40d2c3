from types import TracebackType

from typing_extensions import disjoint_base

@disjoint_base
class Lock:
    """A ``threading.Lock`` that can be subclassed, for ``kprod.lock`` in Python 3.14."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def acquire(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds (None: no limit); return whether it was acquired."""

    def release(self) -> None:
        """Release the lock, from any thread. Raises RuntimeError if it is not held."""
