from typing import Any, final

@final
class ArrowSource:
    """Batches of records from an object with ``__arrow_c_array__`` or ``__arrow_c_stream__``.

    Releases what was exported exactly once, at the latest with itself. Not thread-safe. Raises
    TypeError for an object that has neither, or whose data has no columns; OSError when the stream
    fails.
    """

    def __new__(cls, data: Any) -> ArrowSource: ...
    def columns(self) -> list[tuple[str, str, bool, list[Any]]]:
        """Name, Arrow format and whether it is dictionary-encoded; and the same of its children."""
    def next_batch(self) -> int:
        """Go on to the next batch: its number of rows, or -1 when there is none.

        Raises OSError when the stream fails, ValueError for a batch that does not fit.
        """
