"""How large a record may be, and what is told of one that is larger."""

from __future__ import annotations

from kprod.config import ProducerConfig
from kprod.errors import RecordTooLargeError
from kprod.types import BytesLike, ProducerRecord
from kprod_ext.batch import batch_size_upper_bound
from kprod_ext.record_rules import largest_payload


class SizeLimits:
    """The options that limit a record, by the bytes of a batch with it alone. Immutable.

    ``largest`` is the bytes of that batch, ``largest_payload`` those of key, value and headers for
    which the size of the batch need not be worked out.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._limits = {
            "max_request_size": config.max_request_size,
            "buffer_memory": config.buffer_memory,
        }
        self.largest = min(self._limits.values())
        self.largest_payload = largest_payload(self.largest)

    def check(self, record: ProducerRecord, key: BytesLike | None, value: BytesLike | None) -> None:
        """Refuse a record that is too large as it will be written. Raises RecordTooLargeError."""
        try:
            size = batch_size_upper_bound(key, value, record.headers)
        except ValueError as error:
            raise RecordTooLargeError(f"a record for topic {record.topic!r}: {error}") from None
        if size > self.largest:
            raise self.error(record.topic, size)

    def error(self, topic: str, size: int) -> RecordTooLargeError:
        """What is told of a record that takes ``size`` bytes; -1: more than the format allows."""
        if size < 0:
            return RecordTooLargeError(
                f"a record for topic {topic!r}: the record is larger than the format allows (2 GiB)"
            )
        name, limit = next(item for item in self._limits.items() if size > item[1])
        return RecordTooLargeError(
            f"a record for topic {topic!r} takes up to {size} bytes, more than {name} ({limit})"
        )
