from typing import Any

from typing_extensions import disjoint_base

def untrack(one: object) -> None:
    """Let the garbage collector pass over an object of a class that it collects.

    For what is made often and freed by its last reference, as CPython does with tuples of numbers:
    walking over such objects costs more than they do. Until ``track`` is called for it, a ring of
    references through it is never found.
    """

def track(one: object) -> None:
    """Let the collector see an object again; nothing happens if it does."""

@disjoint_base
class RecordFuture:
    """What a record's future knows, made once per record by compiled code; to be subclassed.

    ``delivery`` tells the outcome of the batch, ``index`` the record's place in it. ``timestamp``
    is milliseconds since the epoch, the sizes are bytes, -1 for null or none. Read-only.
    """

    def __init__(
        self,
        delivery: Any,
        index: int,
        timestamp: int,
        key_size: int,
        value_size: int,
        header_size: int,
    ) -> None: ...
    @property
    def delivery(self) -> Any: ...
    @property
    def index(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key_size(self) -> int: ...
    @property
    def value_size(self) -> int: ...
    @property
    def header_size(self) -> int: ...
