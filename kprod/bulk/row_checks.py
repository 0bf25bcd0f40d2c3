"""Cells of bulk rows that are not of the plain type: checked as ``send`` checks its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kprod.errors import KprodError
from kprod.intake.arguments import check_partition, check_timestamp, freeze_headers
from kprod.intake.serializers import Serializers
from kprod.types import BytesLike, Header, ProducerRecord

T = TypeVar("T")

_NO_SERIALIZERS = Serializers()


class RowChecks:
    """The checks of one bulk call; their errors name the record by its number.

    ``start`` is the number of the first record of the block that is being looked at.
    ``refuse_too_large`` raises for a record that no request could hold.
    """

    def __init__(
        self,
        topic: str,
        refuse_too_large: Callable[[ProducerRecord, BytesLike | None, BytesLike | None], None],
    ) -> None:
        self.start = 0
        self._topic = topic
        self._refuse_too_large = refuse_too_large

    def payload(self, row: int, field: str, data: Any) -> bytes | None:
        """A key or value as bytes: a copy, for a buffer may change until it is written."""
        record = ProducerRecord(self._topic, **{field: data})
        key, value, _ = self._numbered(row, lambda: _NO_SERIALIZERS.apply(record))
        found = key if field == "key" else value
        return None if found is None else memoryview(found).tobytes()

    def partition(self, row: int, partition: Any) -> int | None:
        """A partition number of any integer type, or None."""
        return self._numbered(row, lambda: check_partition(partition))

    def timestamp(self, row: int, timestamp_ms: Any) -> int | None:
        """A timestamp of any integer type, or None."""
        return self._numbered(row, lambda: check_timestamp(timestamp_ms))

    def headers(self, row: int, headers: Any) -> tuple[Header, ...]:
        """The headers of one record, in the one form that cannot change."""
        return self._numbered(row, lambda: freeze_headers(headers))

    def size(
        self,
        row: int,
        key: BytesLike | None,
        value: BytesLike | None,
        headers: tuple[Header, ...],
    ) -> None:
        """Refuse a record that is too large for a request or for the memory."""
        record = ProducerRecord(self._topic, headers=headers)
        self._numbered(row, lambda: self._refuse_too_large(record, key, value))

    def _numbered(self, row: int, check: Callable[[], T]) -> T:
        try:
            return check()
        except KprodError as error:
            raise type(error)(f"record {self.start + row}: {error}") from None
