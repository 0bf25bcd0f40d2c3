"""kprod, by each of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.rivals.client import Client
from benchmarks.rivals.settings import TOPIC, Settings

CALL_RECORDS = 100_000
"""Records of one bulk or columnar call."""


class Kprod(Client):
    """``send``, with every future kept and looked at."""

    def __init__(self, settings: Settings) -> None:
        from kprod import KafkaProducer

        super().__init__(settings)
        options: dict[str, Any] = {"bootstrap_servers": settings.bootstrap_servers}
        if not settings.defaults:
            options |= {"linger_ms": settings.linger_ms, "batch_size": settings.batch_size}
        if settings.compression != "none":
            options["compression_type"] = settings.compression
            options["compression_level"] = settings.level
        if settings.buffer_memory is not None:
            options["buffer_memory"] = settings.buffer_memory
        if settings.cafile is not None:
            options |= {"security_protocol": "SSL", "ssl_cafile": settings.cafile}
        self._producer: Any = KafkaProducer(**options)

    def send(self) -> None:
        """See Client."""
        send = self._producer.send
        if self.keys is None:
            futures = [send(TOPIC, value) for value in self.values]
        else:
            pairs = zip(self.values, self.keys, strict=True)
            futures = [send(TOPIC, value, key) for value, key in pairs]
        self._producer.flush(timeout=120)
        assert all(map(type(futures[0]).succeeded, futures))

    def send_and_wait(self, value: bytes) -> None:
        """See Client."""
        self._producer.send(TOPIC, value).get(timeout=30)

    def close(self) -> None:
        """See Client."""
        self._producer.close()


class KprodForgetting(Kprod):
    """``send``, with nothing kept: what failed is counted by the producer."""

    def send(self) -> None:
        """See Client."""
        send = self._producer.send
        if self.keys is None:
            for value in self.values:
                send(TOPIC, value)
        else:
            for value, key in zip(self.values, self.keys, strict=False):
                send(TOPIC, value, key)
        assert self._producer.flush(timeout=120).failed == 0


class KprodMany(Kprod):
    """``send_many`` of lists."""

    @classmethod
    def exists(cls) -> bool:
        """See Client."""
        from kprod import KafkaProducer

        return hasattr(KafkaProducer, "send_many")

    def prepare(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """See Client."""
        super().prepare(values, keys)
        starts = range(0, len(values), CALL_RECORDS)
        self._calls = [
            (
                list(values[at : at + CALL_RECORDS]),
                None if keys is None else list(keys[at : at + CALL_RECORDS]),
            )
            for at in starts
        ]

    def send(self) -> None:
        """See Client."""
        send_many = self._producer.send_many
        handles = [send_many(TOPIC, values, keys=keys) for values, keys in self._calls]
        for handle in handles:
            handle.get(timeout=120)


class KprodArrow(Kprod):
    """``send_arrow`` of record batches."""

    @classmethod
    def exists(cls) -> bool:
        """See Client."""
        from kprod import KafkaProducer

        return hasattr(KafkaProducer, "send_arrow")

    def prepare(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """See Client. The rows of a call are the first values, over and over."""
        import pyarrow

        super().prepare(values, keys)
        columns = {"value": values[:CALL_RECORDS]}
        if keys is not None:
            columns["key"] = keys[:CALL_RECORDS]
        arrays = {name: pyarrow.array(cells, pyarrow.binary()) for name, cells in columns.items()}
        whole = pyarrow.record_batch(arrays)
        rounds, rest = divmod(len(values), CALL_RECORDS)
        self._calls = [whole] * rounds + ([whole.slice(0, rest)] if rest else [])

    def send(self) -> None:
        """See Client."""
        send_arrow = self._producer.send_arrow
        key = None if self.keys is None else "key"
        handles = [send_arrow(TOPIC, rows, value="value", key=key) for rows in self._calls]
        for handle in handles:
            handle.get(timeout=120)
