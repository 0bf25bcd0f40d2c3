from typing import Any, final

from kprod_ext.record_chunk import RecordChunk

@final
class PlainChunk(RecordChunk):
    """Records of ``bytes`` or None without anything else, read from lists as they are written.

    Without keys an item of the values that is a pair is (key, value). ``largest`` is the bytes that
    key and value of a record may have together. It keeps copies of the lists, not of the records.
    """

    def __new__(cls, capacity: int, largest: int) -> PlainChunk: ...
    def begin(self, values: list[Any], keys: list[Any] | None, start: int, end: int) -> None:
        """Read rows ``start`` to ``end`` of these lists, as they are now, instead of those before.

        Reading ends before the first row that is anything else, or too large.
        """
    @property
    def read(self) -> int:
        """Rows that were read, of those ``begin`` was told."""
