from collections.abc import Callable
from typing import Any, final

@final
class FlatRecordEncoder:
    """Encodes one record after ``prefix``. Thread-safe if ``otherwise`` is.

    ``fields`` are in the order of the schema: (name, kind, number of the union's null branch or -1,
    default, data for the kind). Kinds are the primitive types, ``"fixed"`` (data: its size),
    ``"enum"`` (data: a dict from symbol to number), ``"int-date"``, ``"long-timestamp-millis"``,
    ``"long-timestamp-micros"`` and ``"other"`` (data: a callable that returns the field's bytes).
    """

    def __new__(
        cls,
        fields: list[tuple[str, str, int, Any, Any]],
        prefix: bytes,
        otherwise: Callable[[Any], bytes],
    ) -> FlatRecordEncoder: ...
    def encode(self, data: Any) -> bytes:
        """Encode a dict. If the compiled code cannot do it, return what ``otherwise`` returns."""
