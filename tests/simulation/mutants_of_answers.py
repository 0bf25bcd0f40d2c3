"""Broken reading of answers, broken writing of requests."""

from __future__ import annotations

from kprod.errors import KprodError
from kprod.sender.connection import BrokerConnection, Buffers
from kprod.sender.produce import ProduceExchange
from kprod.wire.framing import split_response_header


class IgnoresIds(BrokerConnection):
    """Answers are taken in the order they come, whatever they answer."""

    def _match(self, frame: memoryview, now: float) -> None:
        if self.unanswered:
            oldest = self.unanswered[0]
            _, body = split_response_header(oldest.api, oldest.version, frame)
            oldest.answered(oldest.version, body, now)
            self.unanswered.popleft()
            self._settle(now)


class Swallows(ProduceExchange):
    def _end_left_out(self, now: float) -> None:
        self._batches.clear()


class Shuffles(ProduceExchange):
    """Results are matched by their place in the answer rather than by their name."""

    def answered(self, version: int, body: memoryview, now: float) -> int:
        places, batches = list(self._batches), list(self._batches.values())
        self._batches = dict(zip(places, batches[1:] + batches[:1], strict=True))
        return super().answered(version, body, now)


class SaysNotSent(ProduceExchange):
    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        super().failed(error, now, sent=False)


class Misroutes(ProduceExchange):
    """KAFKA-19012 as seen from the topic: records that belong to another one."""

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        before = dict(self._batches)
        turned = [*list(before.values())[1:], *list(before.values())[:1]]
        self._batches = dict(zip(before, turned, strict=True))
        buffers = super().encode(version, correlation_id, client_id)
        self._batches = before
        return buffers
