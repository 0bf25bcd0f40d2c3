from collections.abc import Callable
from contextvars import Context
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class LoopFuture:
    """The fields of an asyncio future whose outcome is that of ``native``; to be subclassed."""

    native: Any
    _settling: Any
    _callback: Callable[[Any], object] | None
    _context: Context | None
    _more: list[tuple[Callable[[Any], object], Context]] | None
    _cancel_message: Any
    _asyncio_future_blocking: bool
    is_cancelled: bool
