from types import TracebackType

from typing_extensions import disjoint_base

@disjoint_base
class Lock:
    """A ``threading.Lock`` that a ``with`` statement leaves also where there is no memory."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def acquire(self, timeout: float | None = None) -> bool:
        """Wait for the lock at most ``timeout`` seconds (None: without limit); whether it came."""

    def release(self) -> None:
        """Any thread may release it. RuntimeError: nobody holds it."""
