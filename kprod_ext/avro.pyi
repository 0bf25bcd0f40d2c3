from collections.abc import Callable
from typing import Any, final

@final
class FlatRecordEncoder:
    """Writes ``prefix`` and one record. Thread-safe if ``otherwise`` is.

    ``fields`` in their order: (name, kind, number of the union's null branch or -1, default, what
    the kind needs). Kinds are the primitive types, ``"fixed"`` (its size), ``"enum"`` (a dict from
    symbol to number), ``"int-date"``, ``"long-timestamp-millis"``, ``"long-timestamp-micros"`` and
    ``"other"`` (a callable that makes the bytes of the field).
    """

    def __new__(
        cls,
        fields: list[tuple[str, str, int, Any, Any]],
        prefix: bytes,
        otherwise: Callable[[Any], bytes],
    ) -> FlatRecordEncoder: ...
    def encode(self, data: Any) -> bytes:
        """The bytes of a dict; of anything that is not written here, what ``otherwise`` makes."""
